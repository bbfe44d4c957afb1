//! What a child finds in its environment (PROTOCOL section 4, `envPolicy`).
//!
//! Without a policy it is exactly what the caller sent. With one, the server's own environment is the start: `inherit`
//! chooses from it, names that look like secrets go, `exclude` takes more away, `set` adds, `includeOnly` keeps what it
//! names, and the caller's `env` lies on top of everything.
//!
//! Globs know `*` and `?` and nothing else, do not tell upper from lower case, and match the whole name.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

use serde::{Deserialize, Serialize};
use wildmatch::WildMatch;

/// `envPolicy` of `process/start`:
/// `{inherit, ignoreDefaultExcludes, exclude: [glob], set: {}, includeOnly: [glob]}`, all required.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EnvPolicy {
    /// How much of the server's own environment is the start.
    pub inherit: Inherit,
    /// Whether names that look like secrets (`*KEY*`, `*SECRET*`, `*TOKEN*`) stay.
    pub ignore_default_excludes: bool,
    /// Globs of names that go.
    pub exclude: Vec<String>,
    /// Variables that are added after the excludes, so these do not touch them.
    pub set: BTreeMap<String, String>,
    /// Globs of names that stay; when there is none, all stay.
    pub include_only: Vec<String>,
}

/// How much of the server's own environment a child inherits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Inherit {
    /// `HOME`, `LOGNAME`, `PATH`, `SHELL`, `USER`, `USERNAME`, `TMPDIR`, `TEMP`, `TMP`, as far as they are set.
    Core,
    /// All of it.
    All,
    /// Nothing.
    None,
}

/// The environment of a child: `env` alone, or what `policy` makes of `ours` with `env` on top.
///
/// `ours` is the server's own environment, [`std::env::vars_os`]; it is not read without a policy. What in its names is
/// no UTF-8 is matched as U+FFFD. The strings of `env` are moved, those of `set` are copied.
///
/// # Errors
///
/// A name or value in `env` or `set` that no process can be given, or more matching than [`MOST_STEPS`].
pub(crate) fn environment(
    policy: Option<&EnvPolicy>,
    env: BTreeMap<String, String>,
    ours: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<BTreeMap<OsString, OsString>, EnvError> {
    check(&env)?;
    let mut variables = match policy {
        Some(policy) => policy.environment(ours)?,
        None => BTreeMap::new(),
    };
    variables.extend(env.into_iter().map(|(name, value)| (name.into(), value.into())));
    Ok(variables)
}

impl EnvPolicy {
    /// What the caller's `env` is laid on.
    fn environment(
        &self,
        ours: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<BTreeMap<OsString, OsString>, EnvError> {
        check(&self.set)?;
        let ours = ours.into_iter();
        let mut variables: BTreeMap<_, _> = match self.inherit {
            Inherit::All => ours.collect(),
            Inherit::Core => ours.filter(|(name, _)| CORE.iter().any(|core| name == core)).collect(),
            Inherit::None => BTreeMap::new(),
        };
        self.check_steps(&variables)?;

        let defaults: &[&str] = if self.ignore_default_excludes { &[] } else { &SECRETS };
        let exclude = globs(defaults.iter().copied().chain(self.exclude.iter().map(String::as_str)));
        variables.retain(|name, _| !is_named_by(&exclude, name));

        variables.extend(self.set.iter().map(|(name, value)| (name.into(), value.into())));

        if !self.include_only.is_empty() {
            let include_only = globs(self.include_only.iter().map(String::as_str));
            variables.retain(|name, _| is_named_by(&include_only, name));
        }
        Ok(variables)
    }

    /// Refuses a policy that costs too much to match, before a glob is built.
    fn check_steps(&self, inherited: &BTreeMap<OsString, OsString>) -> Result<(), EnvError> {
        let globs = self.exclude.iter().chain(&self.include_only);
        let glob_bytes: u64 = globs.map(|glob| glob.len() as u64 + OVERHEAD_BYTES).sum();
        let names = inherited.keys().map(|name| name.len()).chain(self.set.keys().map(String::len));
        let name_bytes: u64 = names.map(|length| length as u64 + OVERHEAD_BYTES).sum();
        let steps = glob_bytes.saturating_mul(name_bytes.max(LEAST_NAME_BYTES));
        if steps > MOST_STEPS { Err(EnvError::Steps { observed: steps }) } else { Ok(()) }
    }
}

/// Why an environment cannot be made. The texts hold at most 64 characters of a name, escaped, and nothing of a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EnvError {
    /// A variable without a name.
    #[error("an environment variable needs a name")]
    EmptyName,
    /// `=` in a name, which would end it there.
    #[error("the name {name} of an environment variable cannot hold =")]
    EqualsInName {
        /// The name, cut and escaped.
        name: String,
    },
    /// NUL in a name.
    #[error("the name {name} of an environment variable cannot hold NUL")]
    NulInName {
        /// The name, cut and escaped.
        name: String,
    },
    /// NUL in a value.
    #[error("the value of the environment variable {name} cannot hold NUL")]
    NulInValue {
        /// The variable's name, cut and escaped.
        name: String,
    },
    /// The globs of a policy would take more than [`MOST_STEPS`] to match.
    #[error("the globs of envPolicy cost {observed} steps to match (limit {MOST_STEPS})")]
    Steps {
        /// Bytes of globs times bytes of names.
        observed: u64,
    },
}

/// The most steps that the globs of one policy may take.
///
/// Attack: `wildmatch` goes back to the last `*` only, so it is never exponential, but a glob of n bytes costs a name of m
/// bytes n x m steps, and a message of 64 MiB can hold 32 MiB of each. Consequence: weeks of one core. Answered: refused
/// before anything is matched. Default: 67,108,864 = bytes of all globs x bytes of all names, each counted 8 bytes longer
/// than it is; 0.4 s at worst (keep it off the reactor), and room for 6,000 bytes of globs over an environment of 10,000
/// bytes of names. Heap of the globs: 0.5 MiB at worst.
pub const MOST_STEPS: u64 = 64 * 1024 * 1024;

/// What a glob or a name costs beside its bytes.
const OVERHEAD_BYTES: u64 = 8;

/// Names count this much at least, so that the globs are bounded where there are no names.
const LEAST_NAME_BYTES: u64 = 1024;

const CORE: [&str; 9] = ["HOME", "LOGNAME", "PATH", "SHELL", "USER", "USERNAME", "TMPDIR", "TEMP", "TMP"];

const SECRETS: [&str; 3] = ["*KEY*", "*SECRET*", "*TOKEN*"];

fn globs<'a>(patterns: impl Iterator<Item = &'a str>) -> Vec<WildMatch> {
    patterns.map(WildMatch::new_case_insensitive).collect()
}

fn is_named_by(globs: &[WildMatch], name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    globs.iter().any(|glob| glob.matches(&name))
}

fn check(variables: &BTreeMap<String, String>) -> Result<(), EnvError> {
    for (name, value) in variables {
        if name.is_empty() {
            return Err(EnvError::EmptyName);
        }
        if name.contains('=') {
            return Err(EnvError::EqualsInName { name: shown(name) });
        }
        if name.contains('\0') {
            return Err(EnvError::NulInName { name: shown(name) });
        }
        if value.contains('\0') {
            return Err(EnvError::NulInValue { name: shown(name) });
        }
    }
    Ok(())
}

/// The start of a name, quoted, so that an error can hold it.
fn shown(name: &str) -> String {
    let start: String = name.chars().take(64).collect();
    let cut = if start.len() < name.len() { "..." } else { "" };
    format!("{start:?}{cut}")
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;
    use std::time::{Duration, Instant};

    use super::*;

    const OURS: [(&str, &str); 9] = [
        ("HOME", "/home/a"),
        ("PATH", "/bin"),
        ("LANG", "C"),
        ("API_KEY", "1"),
        ("monkey", "2"),
        ("GITHUB_TOKEN", "3"),
        ("MY_SECRETS", "4"),
        ("AWS_REGION", "eu"),
        ("path", "no core variable: case counts"),
    ];

    fn policy(text: &str) -> EnvPolicy {
        serde_json::from_str(text).unwrap()
    }

    fn map(variables: &[(&str, &str)]) -> BTreeMap<String, String> {
        variables.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()
    }

    fn names(policy_text: &str, env: &[(&str, &str)]) -> String {
        let ours = OURS.map(|(name, value)| (name.into(), value.into()));
        let made = environment(Some(&policy(policy_text)), map(env), ours).unwrap();
        made.keys().map(|name| name.to_str().unwrap()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn without_a_policy_it_is_exactly_env() {
        let ours = OURS.map(|(name, value)| (name.into(), value.into()));
        let made = environment(None, map(&[("A", "1"), ("API_KEY", "2")]), ours).unwrap();
        assert_eq!(made, [("A".into(), "1".into()), ("API_KEY".into(), "2".into())].into());
    }

    #[test]
    fn inherit_chooses_the_start() {
        let all = r#"{"inherit":"all","ignoreDefaultExcludes":true,"exclude":[],"set":{},"includeOnly":[]}"#;
        assert_eq!(names(all, &[]), "API_KEY AWS_REGION GITHUB_TOKEN HOME LANG MY_SECRETS PATH monkey path");
        let core = r#"{"inherit":"core","ignoreDefaultExcludes":true,"exclude":[],"set":{},"includeOnly":[]}"#;
        assert_eq!(names(core, &[]), "HOME PATH");
        let none = r#"{"inherit":"none","ignoreDefaultExcludes":true,"exclude":[],"set":{},"includeOnly":[]}"#;
        assert_eq!(names(none, &[]), "");
    }

    #[test]
    fn what_looks_like_a_secret_goes_whatever_its_case() {
        let text = r#"{"inherit":"all","ignoreDefaultExcludes":false,"exclude":[],"set":{},"includeOnly":[]}"#;
        assert_eq!(names(text, &[]), "AWS_REGION HOME LANG PATH path");
    }

    #[test]
    fn exclude_then_set_then_include_only_then_env() {
        let text = r#"{"inherit":"all","ignoreDefaultExcludes":false,"exclude":["aws_*","L?NG"],
            "set":{"AWS_PROFILE":"x","A_TOKEN":"set is not excluded","GONE":"not included"},
            "includeOnly":["aws*","*TOKEN","HOM?"]}"#;
        assert_eq!(
            names(text, &[("B_KEY", "env is never filtered"), ("LANG", "C")]),
            "AWS_PROFILE A_TOKEN B_KEY HOME LANG"
        );
    }

    #[test]
    fn later_steps_overwrite_earlier_ones() {
        let text = r#"{"inherit":"all","ignoreDefaultExcludes":true,"exclude":[],
            "set":{"HOME":"/set","LANG":"set"},"includeOnly":[]}"#;
        let ours = OURS.map(|(name, value)| (name.into(), value.into()));
        let made = environment(Some(&policy(text)), map(&[("LANG", "env")]), ours).unwrap();
        assert_eq!(made[OsStr::new("HOME")], "/set");
        assert_eq!(made[OsStr::new("LANG")], "env");
        assert_eq!(made[OsStr::new("PATH")], "/bin");
    }

    #[test]
    fn variables_that_are_no_text_are_inherited_byte_by_byte() {
        let text = r#"{"inherit":"all","ignoreDefaultExcludes":false,"exclude":[],"set":{},"includeOnly":["b?d"]}"#;
        let bad = OsString::from_vec(b"b\xffd".to_vec());
        let secret = OsString::from_vec(b"\xffKEY".to_vec());
        let ours = [(bad.clone(), bad.clone()), (secret, "x".into())];
        assert_eq!(environment(Some(&policy(text)), map(&[]), ours).unwrap(), [(bad.clone(), bad)].into());
    }

    #[test]
    fn what_no_process_can_be_given_is_refused() {
        let none = r#"{"inherit":"none","ignoreDefaultExcludes":true,"exclude":[],"set":{},"includeOnly":[]}"#;
        for (name, value, error) in [
            ("", "x", "an environment variable needs a name"),
            ("A=B", "x", "the name \"A=B\" of an environment variable cannot hold ="),
            ("=", "x", "the name \"=\" of an environment variable cannot hold ="),
            ("A\0", "x", "the name \"A\\0\" of an environment variable cannot hold NUL"),
            ("A", "\0", "the value of the environment variable \"A\" cannot hold NUL"),
        ] {
            let mut set = policy(none);
            set.set = map(&[(name, value)]);
            assert_eq!(environment(None, map(&[(name, value)]), []).unwrap_err().to_string(), error);
            assert_eq!(environment(Some(&set), map(&[]), []).unwrap_err().to_string(), error);
        }
        assert_eq!(environment(None, map(&[("A", "a=b"), ("B", "")]), []).unwrap().len(), 2);
    }

    #[test]
    fn an_error_holds_little_of_a_name_and_no_escape_sequence() {
        let name = format!("\u{1b}[31m\u{202e}{}=", "n".repeat(100_000));
        let error = environment(None, map(&[(&name, "x")]), []).unwrap_err().to_string();
        assert!(error.len() < 200 && error.is_ascii() && !error.contains('\u{1b}'), "{error}");
    }

    #[test]
    fn matching_is_bounded() {
        let mut costly =
            policy(r#"{"inherit":"none","ignoreDefaultExcludes":true,"exclude":[],"set":{},"includeOnly":[]}"#);
        // The worst globs: at every start in the name they fail at their end.
        for (letter, other, width) in [("a", "A", 1), ("\u{e9}", "\u{c9}", 2)] {
            costly.include_only = vec![format!("*{}b", letter.repeat(2_000 / width))];
            costly.set = map(&[(&other.repeat(33_000 / width), "x")]);
            let begun = Instant::now();
            assert_eq!(environment(Some(&costly), map(&[]), []).unwrap().len(), 0);
            let took = begun.elapsed();
            println!("the worst accepted policy took {took:?}");
            assert!(took < Duration::from_secs(20), "{took:?}");

            costly.set = map(&[(&other.repeat(34_000 / width), "x")]);
            let error = environment(Some(&costly), map(&[]), []).unwrap_err();
            assert_eq!(error, EnvError::Steps { observed: 2_010 * 34_008 });
        }
        // Many globs where there is no name at all cost memory.
        costly.set.clear();
        costly.include_only = vec![String::new(); 8 * 1024];
        assert!(environment(Some(&costly), map(&[]), []).is_ok());
        costly.include_only.push(String::new());
        assert!(matches!(environment(Some(&costly), map(&[]), []), Err(EnvError::Steps { .. })));
    }

    #[test]
    fn every_member_of_a_policy_is_required() {
        let whole =
            r#"{"inherit":"all","ignoreDefaultExcludes":true,"exclude":["a"],"set":{"b":"c"},"includeOnly":["d"]}"#;
        let value: serde_json::Value = serde_json::from_str(whole).unwrap();
        assert_eq!(serde_json::to_value(policy(whole)).unwrap(), value);
        for member in ["inherit", "ignoreDefaultExcludes", "exclude", "set", "includeOnly"] {
            let mut less = value.clone();
            less.as_object_mut().unwrap().remove(member);
            let error = serde_json::from_value::<EnvPolicy>(less).unwrap_err().to_string();
            assert!(error.contains(member), "{error}");
        }
        assert!(serde_json::from_str::<Inherit>("\"some\"").is_err());
    }
}
