//! What this machine tells about itself (PROTOCOL section 4, `EnvironmentInfo`).
//!
//! Everything is found once, when a server starts; nothing is written, and nothing is run.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::process::getuid;
use rustix::system::uname;
use sha2::{Digest, Sha256};

use crate::path_uri::PathUri;
use crate::wire::{EnvironmentInfo, ServerAdditions, Shell};

impl EnvironmentInfo {
    /// This machine as the user of this process sees it.
    ///
    /// `version` is the server's. A directory that is not set, is not there or has no URI is left out. Capabilities are
    /// named and false: none of them is offered yet.
    pub fn of_this_machine(version: &str, additions: ServerAdditions) -> Self {
        let temp_dir = directory(&std::env::temp_dir());
        let mut temporary_directories: Vec<_> = temp_dir.iter().cloned().chain(directory(Path::new("/tmp"))).collect();
        temporary_directories.dedup();
        Self {
            shell: shell(std::env::var_os("SHELL")),
            executor_version: version.to_owned(),
            provider_id: provider_id(&machine_id(), uname().nodename().to_bytes(), getuid().as_raw()),
            cwd: std::env::current_dir().ok().and_then(|path| directory(&path)),
            user_home_dir: std::env::home_dir().and_then(|path| directory(&path)),
            platform_os: Some(std::env::consts::OS.to_owned()),
            prepend_path_dirs: Vec::new(),
            temporary_directories,
            temp_dir,
            capabilities: CAPABILITIES.iter().map(|name| ((*name).to_owned(), false)).collect(),
            plimsoll: Some(additions),
        }
    }
}

/// `chosen` if it can be run, else bash, else sh.
fn shell(chosen: Option<OsString>) -> Shell {
    let candidates = chosen.map(PathBuf::from).into_iter().chain([PathBuf::from("/bin/bash")]);
    let path = candidates.filter(|path| path.is_absolute() && can_be_run(path)).find_map(|path| {
        // The protocol has a plain string here, so a name that is none cannot be told.
        path.into_os_string().into_string().ok()
    });
    let path = path.unwrap_or_else(|| "/bin/sh".to_owned());
    let name = path.rsplit('/').next().unwrap_or_default().to_owned();
    Shell { name, path }
}

fn can_be_run(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

fn directory(path: &Path) -> Option<PathUri> {
    if path.is_dir() { PathUri::from_path(path).ok() } else { None }
}

/// `sha256:` and the hexadecimal SHA-256 of what names this machine and this user.
///
/// It is the same as long as the machine id, the host name and the user are. It cannot be turned back: the machine id holds
/// 128 random bits, and machine-id(5) asks to give it away only hashed with a text of one's own. On a machine without
/// one (some containers) the host name and the user alone could be guessed, and two machines could look alike, so
/// nothing may rest on it but recognition.
fn provider_id(machine_id: &[u8], host: &[u8], user: u32) -> String {
    let mut hash = Sha256::new();
    for part in [b"plimsoll-exec provider v1".as_slice(), machine_id, host, &user.to_be_bytes()] {
        // The length before each part: no two machines hash the same bytes.
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    let mut text = String::from("sha256:");
    for byte in hash.finalize() {
        for digit in [byte >> 4, byte & 15] {
            text.extend(char::from_digit(digit.into(), 16));
        }
    }
    text
}

/// The machine id of machine-id(5), or of D-Bus before it; empty when there is none.
fn machine_id() -> Vec<u8> {
    for path in ["/etc/machine-id", "/var/lib/dbus/machine-id"] {
        let mut id = [0; 64];
        let read = File::open(path).and_then(|mut file| file.read(&mut id));
        if let Ok(length @ 1..) = read {
            return id[..length].trim_ascii().to_vec();
        }
    }
    Vec::new()
}

/// What clients of the reference ask for before they use it.
const CAPABILITIES: [&str; 4] = ["fileWriteStreaming", "sandboxedFileStreaming", "fsWatchMissing", "httpHeaderEnvVars"];

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use super::*;

    #[test]
    fn this_machine_is_told_truthfully() {
        let additions = ServerAdditions { methods: vec!["plimsoll/x".into()], ..ServerAdditions::default() };
        let info = EnvironmentInfo::of_this_machine("1.2.3", additions.clone());
        assert_eq!(info.executor_version, "1.2.3");
        assert_eq!(info.platform_os.as_deref(), Some("linux"));
        assert_eq!(info.cwd.as_ref().unwrap().to_path(), std::env::current_dir().unwrap());
        assert!(can_be_run(Path::new(&info.shell.path)));
        assert!(info.temporary_directories.contains(&PathUri::parse("file:///tmp").unwrap()));
        assert!(info.temporary_directories.contains(info.temp_dir.as_ref().unwrap()));
        assert!(info.capabilities.len() == 4 && info.capabilities.values().all(|offered| !offered));
        assert_eq!(info.plimsoll, Some(additions.clone()));
        assert_eq!(EnvironmentInfo::of_this_machine("1.2.3", additions), info);
        let text = serde_json::to_string(&info).unwrap();
        assert_eq!(serde_json::from_str::<EnvironmentInfo>(&text).unwrap(), info);
    }

    #[test]
    fn a_shell_that_cannot_be_run_is_not_told() {
        let bash_or_sh = if can_be_run(Path::new("/bin/bash")) { "/bin/bash" } else { "/bin/sh" };
        for chosen in ["", "bash", "bin/sh", "/nonexistent/zsh", "/etc/passwd", "/tmp"] {
            assert_eq!(shell(Some(chosen.into())).path, bash_or_sh, "{chosen}");
        }
        assert_eq!(shell(None).path, bash_or_sh);
        assert_eq!(shell(Some(OsString::from_vec(b"/\xff".to_vec()))).path, bash_or_sh);
        assert_eq!(shell(Some("/bin/sh".into())), Shell { name: "sh".into(), path: "/bin/sh".into() });
    }

    #[test]
    fn a_provider_id_tells_machines_and_users_apart_and_nothing_else() {
        let id = provider_id(b"0123456789abcdef0123456789abcdef", b"host", 1000);
        assert_eq!(id.len(), 7 + 64);
        assert!(id.strip_prefix("sha256:").unwrap().bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')));
        assert_eq!(id, provider_id(b"0123456789abcdef0123456789abcdef", b"host", 1000));
        assert_ne!(id, provider_id(b"0123456789abcdef0123456789abcdef", b"host", 1001));
        assert_ne!(id, provider_id(b"0123456789abcdef0123456789abcdef", b"other", 1000));
        assert_ne!(provider_id(b"a", b"bc", 0), provider_id(b"ab", b"c", 0));
    }
}
