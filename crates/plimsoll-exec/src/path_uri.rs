//! `file:` URIs, the only way in which this protocol names a file (PROTOCOL section 2).
//!
//! A URI is normalised as the WHATWG URL standard says: `.` and `..` segments are resolved by name alone, `%2e` among
//! them; raw spaces and non-ASCII characters become percent-escapes. Slashes in a row are then one slash. Escapes are
//! bytes, not text: `file:///d/bad%FF%FEname` names a file whose name is no UTF-8.
//!
//! Refused is what cannot name a file of this machine, or names one only after bytes were dropped in silence: another
//! scheme, a native path, a host (`localhost` is none), a drive letter, a query, a fragment, an escaped NUL or slash,
//! raw control characters. No file system is asked: links are not followed, and a URI says nothing about existence.

use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, percent_encode};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use url::{ParseError, Url};

/// A normalised `file:` URI: `file:///` and a path of percent-encoded bytes.
///
/// Two URIs are equal when their texts are; escapes keep the spelling they came with, so `%41` is not `A` here although
/// both name the same file.
///
/// On the wire it is a string. Its heap is at most three times the bytes of the string it came from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathUri {
    // Starts with `file:///`; ASCII; no empty segment but the last; decodes to a path without NUL.
    text: String,
}

impl PathUri {
    /// Reads and normalises a URI.
    ///
    /// # Errors
    ///
    /// One [`PathUriError`] a refusal; none of them holds any of `text`.
    pub fn parse(text: &str) -> Result<Self, PathUriError> {
        if text.len() > MOST_BYTES {
            return Err(PathUriError::TooLong);
        }
        // The URL standard drops tabs and newlines, so the name of another file would be left.
        if text.bytes().any(|byte| byte < b' ') {
            return Err(PathUriError::Control);
        }
        let url = Url::parse(text).map_err(|error| match error {
            ParseError::RelativeUrlWithoutBase => PathUriError::NotAUri,
            _ => PathUriError::Host,
        })?;
        if url.scheme() != "file" {
            return Err(PathUriError::Scheme);
        }
        if url.has_host() {
            return Err(PathUriError::Host);
        }
        if url.query().is_some() {
            return Err(PathUriError::Query);
        }
        if url.fragment().is_some() {
            return Err(PathUriError::Fragment);
        }
        if holds_escape(url.path(), b"00") {
            return Err(PathUriError::Nul);
        }
        if holds_escape(url.path(), b"2f") {
            return Err(PathUriError::Slash);
        }
        let text = collapsed(url.path());
        if starts_with_drive(&text) {
            return Err(PathUriError::Drive);
        }
        Ok(Self { text })
    }

    /// The URI of an absolute path, every byte of it kept. `.` and repeated slashes are left out, as [`Path::components`]
    /// does.
    ///
    /// # Errors
    ///
    /// When the path is relative, holds NUL, or holds `..`: URIs resolve that by name alone, the file system through
    /// links, so the URI could name another file.
    pub fn from_path(path: &Path) -> Result<Self, PathUriError> {
        if !path.is_absolute() {
            return Err(PathUriError::Relative);
        }
        let mut text = String::from(ROOT);
        for component in path.components() {
            let name = match component {
                Component::Normal(name) => name.as_bytes(),
                Component::ParentDir => return Err(PathUriError::Parent),
                Component::Prefix(_) | Component::RootDir | Component::CurDir => continue,
            };
            if name.contains(&0) {
                return Err(PathUriError::Nul);
            }
            let is_first = text.len() == ROOT.len();
            if !is_first {
                text.push('/');
            }
            if let (true, [letter @ (b'a'..=b'z' | b'A'..=b'Z'), b':']) = (is_first, name) {
                // A directory `/c:` is legal here; unescaped it would read as a drive.
                text.push(char::from(*letter));
                text.push_str("%3A");
            } else {
                text.extend(percent_encode(name, ESCAPED));
            }
            if text.len() > MOST_BYTES {
                return Err(PathUriError::TooLong);
            }
        }
        Ok(Self { text })
    }

    /// The path that is named: absolute, its bytes exact, without a slash at the end (the root excepted), so that
    /// `file:///link/` is not followed by accident.
    pub fn to_path(&self) -> PathBuf {
        let mut bytes: Vec<u8> = percent_decode_str(&self.text[ROOT.len() - 1..]).collect();
        if bytes.len() > 1 && bytes.last() == Some(&b'/') {
            bytes.pop();
        }
        PathBuf::from(OsString::from_vec(bytes))
    }

    /// The normalised text.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for PathUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::str::FromStr for PathUri {
    type Err = PathUriError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

impl Serialize for PathUri {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for PathUri {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(Text)
    }
}

struct Text;

impl de::Visitor<'_> for Text {
    type Value = PathUri;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a file: URI")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<PathUri, E> {
        PathUri::parse(text).map_err(E::custom)
    }
}

/// Why a text is no [`PathUri`], or a path has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PathUriError {
    /// A character below U+0020 stands in the text.
    #[error("a file: URI cannot hold control characters; write them as %XX")]
    Control,
    /// The path starts with a drive letter.
    #[error("a file: URI with a drive letter names no file on this machine")]
    Drive,
    /// There is a `#`.
    #[error("a file: URI cannot have a fragment; write # as %23")]
    Fragment,
    /// There is a host, a port, or something else before the path that is no path.
    #[error("a file: URI cannot have a host; write file:/// and the path")]
    Host,
    /// There is no scheme: a native path, perhaps.
    #[error("a path must be a file: URI, such as file:///tmp/x")]
    NotAUri,
    /// There is a NUL, which no path can hold.
    #[error("a path cannot hold a NUL byte")]
    Nul,
    /// The path holds `..`.
    #[error("a path with .. has no file: URI; resolve it first")]
    Parent,
    /// There is a `?`.
    #[error("a file: URI cannot have a query; write ? as %3F")]
    Query,
    /// The path is not absolute.
    #[error("only an absolute path has a file: URI")]
    Relative,
    /// The scheme is not `file`.
    #[error("a path must be a file: URI; this one has another scheme")]
    Scheme,
    /// There is a `%2F`. No name can hold a slash, and `..%2F` would pass by the normalisation.
    #[error("a name in a file: URI cannot hold an escaped slash")]
    Slash,
    /// The text is longer than any path that the system takes.
    #[error("a file: URI cannot be over {MOST_BYTES} bytes long")]
    TooLong,
}

/// `path` behind `file://`, every run of slashes made one.
fn collapsed(path: &str) -> String {
    let mut text = String::with_capacity(ROOT.len() + path.len());
    text.push_str(ROOT);
    for part in path.split_inclusive('/').filter(|part| *part != "/") {
        text.push_str(part);
    }
    text
}

/// Whether the two hexadecimal digits (in lower case) stand behind a `%` anywhere. An escape holds no `%` itself, so
/// none can be overlooked or imagined.
fn holds_escape(path: &str, digits: &[u8; 2]) -> bool {
    path.as_bytes().windows(3).any(|three| three[0] == b'%' && three[1..].eq_ignore_ascii_case(digits))
}

/// Whether the first segment is `C:` or the older spelling `C|`.
fn starts_with_drive(text: &str) -> bool {
    match text.as_bytes().get(ROOT.len()..) {
        Some([letter, b':' | b'|']) => letter.is_ascii_alphabetic(),
        Some([letter, b':' | b'|', b'/', ..]) => letter.is_ascii_alphabetic(),
        _ => false,
    }
}

const ROOT: &str = "file:///";

/// Attack: normalising may need three times the text. Consequence: 192 KiB at most for one URI. Default: the system
/// takes paths of 4,096 bytes, 12,288 when all are escaped; the rest is room for `..`.
const MOST_BYTES: usize = 64 * 1024;

/// What the URL standard escapes in a path, and what would not come back as itself: `%` and the separators. `^` and `|`
/// besides, which other readers take differently.
const ESCAPED: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'/')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'\\')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    fn parsed(text: &str) -> String {
        PathUri::parse(text).map(|uri| uri.text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    fn refused(text: &str) -> PathUriError {
        PathUri::parse(text).expect_err(text)
    }

    fn bytes(uri: &str) -> Vec<u8> {
        PathUri::parse(uri).unwrap().to_path().into_os_string().into_vec()
    }

    #[test]
    fn uris_are_normalised() {
        for (text, normal) in [
            ("file:///", "file:///"),
            ("file://", "file:///"),
            ("file:///tmp", "file:///tmp"),
            ("file:///tmp/", "file:///tmp/"),
            ("FILE:///tmp/A", "file:///tmp/A"),
            ("file:/tmp/a", "file:///tmp/a"),
            ("file:///a/./b", "file:///a/b"),
            ("file:///a/../b", "file:///b"),
            ("file:///../../b", "file:///b"),
            ("file:///a/%2e/b", "file:///a/b"),
            ("file:///a/%2E%2e/b", "file:///b"),
            ("file:///a/.%2e/b", "file:///b"),
            ("file:///a/b/..", "file:///a/"),
            ("file:///a//b", "file:///a/b"),
            ("file:////a///b//", "file:///a/b/"),
            ("file://///", "file:///"),
            ("file:///a b", "file:///a%20b"),
            ("file:///\u{e9}", "file:///%C3%A9"),
            ("file:///a\\b", "file:///a/b"),
            ("file:///a%5Cb", "file:///a%5Cb"),
            ("file://localhost/a", "file:///a"),
            ("file:///a%41", "file:///a%41"),
            ("file:///...", "file:///..."),
        ] {
            assert_eq!(parsed(text), normal, "{text}");
            assert_eq!(parsed(normal), normal);
        }
    }

    #[test]
    fn escapes_are_bytes() {
        assert_eq!(bytes("file:///d/bad%FF%FEname"), b"/d/bad\xff\xfename");
        assert_eq!(bytes("file:///d/%5c%25%3F%23%20"), b"/d/\\%?# ");
        assert_eq!(bytes("file:///100%"), b"/100%");
        assert_eq!(bytes("file:///%zz%4"), b"/%zz%4");
        assert_eq!(bytes("file:///%252F"), b"/%2F");
        assert_eq!(bytes("file:///\u{1f980}"), "/\u{1f980}".as_bytes());
    }

    #[test]
    fn a_slash_at_the_end_is_no_part_of_the_path() {
        assert_eq!(bytes("file:///tmp/"), b"/tmp");
        assert_eq!(bytes("file:///"), b"/");
    }

    #[test]
    fn what_names_no_file_here_is_refused() {
        use PathUriError::*;
        for (text, error) in [
            ("", NotAUri),
            ("/tmp/x", NotAUri),
            ("tmp/x", NotAUri),
            ("~/x", NotAUri),
            ("//server/x", NotAUri),
            ("C:\\x", Scheme),
            ("http://localhost/x", Scheme),
            ("http://", Host),
            ("files:///x", Scheme),
            ("data:x", Scheme),
            ("file://server/x", Host),
            ("file://127.0.0.1/x", Host),
            ("file://[::1]/x", Host),
            ("file://localhost:80/x", Host),
            ("file://me@localhost/x", Host),
            ("file://tmp", Host),
            ("file:///x?", Query),
            ("file:///x?y", Query),
            ("file:///x#", Fragment),
            ("file:///x#y", Fragment),
            ("file:///a%00b", Nul),
            ("file:///%00/bad/path/eA", Nul),
            ("file:///a%2Fb", Slash),
            ("file:///..%2f..%2fetc", Slash),
            ("file:///%2e%2e%2Fetc", Slash),
            ("file:///C:/x", Drive),
            ("file:///c:", Drive),
            ("file:///c|/x", Drive),
            ("file:////C|/x", Drive),
            ("file:///a/../C:/x", Drive),
            ("file://C:/x", Drive),
            ("file:C:/x", Drive),
            ("file:///a\nb", Control),
            ("file:///a\tb", Control),
            ("fi\nle:///a", Control),
            ("file:///a\0b", Control),
        ] {
            assert_eq!(refused(text), error, "{text:?}");
        }
    }

    #[test]
    fn no_refusal_repeats_what_was_sent() {
        let long = format!("file://{}/x", "h".repeat(10_000));
        assert!(refused(&long).to_string().len() < 100);
        assert_eq!(refused(&format!("file:///{}", "a".repeat(MOST_BYTES))), PathUriError::TooLong);
        assert_eq!(parsed(&format!("file:///{}", "a".repeat(MOST_BYTES - 8))).len(), MOST_BYTES);
    }

    #[test]
    fn paths_become_uris_byte_by_byte() {
        let uri = |path: &[u8]| PathUri::from_path(Path::new(OsStr::from_bytes(path))).map(|uri| uri.text);
        assert_eq!(uri(b"/").unwrap(), "file:///");
        assert_eq!(uri(b"/tmp/a b").unwrap(), "file:///tmp/a%20b");
        assert_eq!(uri(b"//tmp///a/./b/").unwrap(), "file:///tmp/a/b");
        assert_eq!(uri(b"/d/bad\xff\xfename").unwrap(), "file:///d/bad%FF%FEname");
        assert_eq!(uri(b"/c:/x").unwrap(), "file:///c%3A/x");
        assert_eq!(uri(b"/x/c:/y").unwrap(), "file:///x/c:/y");
        assert_eq!(uri(b"/a\\b?c#d%e").unwrap(), "file:///a%5Cb%3Fc%23d%25e");
        assert_eq!(uri(b"/%2e%2e/x").unwrap(), "file:///%252e%252e/x");
        assert_eq!(uri(b"tmp"), Err(PathUriError::Relative));
        assert_eq!(uri(b""), Err(PathUriError::Relative));
        assert_eq!(uri(b"/a/../b"), Err(PathUriError::Parent));
        assert_eq!(uri(b"/a\0b"), Err(PathUriError::Nul));
        assert_eq!(uri(&[b'/'; 100_000]).unwrap(), "file:///");
        assert_eq!(uri(&b"/\xff".repeat(30_000)), Err(PathUriError::TooLong));
    }

    #[test]
    fn every_path_comes_back() {
        let mut random = Random(7);
        for round in 0..50_000 {
            let mut path = vec![b'/'];
            for _ in 0..1 + random.below(16) {
                path.push(match random.below(3) {
                    0 => HOSTILE[random.below(HOSTILE.len())],
                    1 => b'a' + random.below(26) as u8,
                    _ => 1 + random.below(255) as u8,
                });
            }
            let path = Path::new(OsStr::from_bytes(&path));
            if path.components().any(|component| component == Component::ParentDir) {
                continue;
            }
            let uri = PathUri::from_path(path).unwrap();
            assert!(uri.text.is_ascii());
            assert_eq!(PathUri::parse(uri.as_str()).unwrap(), uri, "round {round}: {path:?}");
            let clean: PathBuf = path.components().collect();
            assert_eq!(uri.to_path().as_os_str(), clean.as_os_str(), "round {round}: {uri}");
        }
    }

    #[test]
    fn normalising_twice_changes_nothing() {
        let parts =
            ["/", "/", "\\", ".", "..", "%2e", "%2F", "%00", "%", "C:", "c|", "C", ":", "|", "a", " ", "\u{e9}", "%FF"];
        let mut random = Random(11);
        let mut accepted = 0;
        for _ in 0..50_000 {
            let mut text = String::from(["file:", "file:/", "file://", "file:///"][random.below(4)]);
            for _ in 0..random.below(9) {
                text.push_str(parts[random.below(parts.len())]);
            }
            let Ok(uri) = PathUri::parse(&text) else { continue };
            accepted += 1;
            assert_eq!(PathUri::parse(uri.as_str()).as_ref(), Ok(&uri), "{text:?}");
            let path = uri.to_path();
            assert!(path.is_absolute());
            assert!(!path.components().any(|component| component == Component::ParentDir), "{text:?}");
            let again = PathUri::from_path(&path).unwrap();
            assert_eq!(again.to_path().as_os_str(), path.as_os_str(), "{text:?}");
        }
        assert!(accepted > 10_000, "{accepted}");
    }

    #[test]
    fn on_the_wire_it_is_a_string() {
        let uri: PathUri = serde_json::from_str(r#""file:///a\u0020b/%ff""#).unwrap();
        assert_eq!(uri.as_str(), "file:///a%20b/%ff");
        assert_eq!(serde_json::to_string(&uri).unwrap(), r#""file:///a%20b/%ff""#);
        let error = serde_json::from_str::<PathUri>(r#""/tmp""#).unwrap_err().to_string();
        assert!(error.starts_with("a path must be a file: URI"), "{error}");
        assert!(serde_json::from_str::<PathUri>("7").unwrap_err().to_string().contains("a file: URI"));
    }

    const HOSTILE: &[u8] = b"/.:|\\%?# /cC2eF0~^`{}<>\"\x01\x7f\x80\xff";

    struct Random(u64);

    impl Random {
        fn below(&mut self, end: usize) -> usize {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) as usize % end
        }
    }
}
