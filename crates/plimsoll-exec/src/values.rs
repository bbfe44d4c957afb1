//! Values of the protocol that are more than their text: bytes as base64, and the secret name of a session.

use std::fmt;
use std::hint::black_box;

use base64::Engine;
use base64::display::Base64Display;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// The name of a session, which is also the secret that lets a client attach to it.
///
/// It is compared in a time that depends on its length alone, and `Debug` does not show it.
#[derive(Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SessionId(String);

impl SessionId {
    /// A new one: 128 random bits, as 32 hexadecimal digits.
    ///
    /// # Errors
    ///
    /// When the system has no randomness to give.
    pub fn random() -> Result<Self, getrandom::Error> {
        let mut bits = [0; 16];
        getrandom::fill(&mut bits)?;
        Ok(Self(format!("{:032x}", u128::from_be_bytes(bits))))
    }

    /// The secret itself.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<String> for SessionId {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl PartialEq for SessionId {
    fn eq(&self, other: &Self) -> bool {
        let (ours, theirs) = (self.0.as_bytes(), other.0.as_bytes());
        let differing = ours.iter().zip(theirs).fold(0, |differing, (a, b)| black_box(differing | (a ^ b)));
        ours.len() == theirs.len() && differing == 0
    }
}

impl Eq for SessionId {}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionId(..)")
    }
}

/// Bytes that travel as base64: the standard alphabet of RFC 4648 section 4, padded, without white space.
///
/// They are written without a string in between, and read into exactly the bytes that they are.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct Base64(pub Vec<u8>);

impl From<Vec<u8>> for Base64 {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }
}

impl AsRef<[u8]> for Base64 {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Base64 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Base64({} bytes)", self.0.len())
    }
}

impl Serialize for Base64 {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&Base64Display::new(&self.0, &STANDARD))
    }
}

impl<'de> Deserialize<'de> for Base64 {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(Base64Text)
    }
}

struct Base64Text;

impl de::Visitor<'_> for Base64Text {
    type Value = Base64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("bytes as base64")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Base64, E> {
        // The error tells one byte and its place, so its text is bounded.
        STANDARD.decode(text).map(Base64).map_err(|error| E::custom(format_args!("bad base64: {error}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::InitializeParams;

    fn error<T: de::DeserializeOwned + fmt::Debug>(text: &str) -> String {
        serde_json::from_str::<T>(text).expect_err(text).to_string()
    }

    #[test]
    fn base64_of_every_length_comes_back() {
        let bytes: Vec<u8> = (0..=255).cycle().take(5_000).collect();
        for length in (0..300).chain([4_095, 4_096, 5_000]) {
            let chunk = Base64(bytes[..length].to_vec());
            let text = serde_json::to_string(&chunk).unwrap();
            assert_eq!(text, format!("\"{}\"", STANDARD.encode(&chunk.0)));
            assert_eq!(serde_json::from_str::<Base64>(&text).unwrap(), chunk);
        }
        // Escapes are undone before.
        assert_eq!(serde_json::from_str::<Base64>(r#""\u0061Gk\u004b""#).unwrap().0, b"hi\n");
    }

    #[test]
    fn bad_base64_is_refused_with_a_short_text() {
        for text in ["aGk", "aGkK=", "aG==kK", "aGl=", "aGkK\n", " aGkK", "a-_K", "=", "aGk\u{e9}", "a"] {
            let text = serde_json::to_string(text).unwrap();
            assert!(error::<Base64>(&text).starts_with("bad base64: "), "{text}");
        }
        let long = format!("\"{}\"", "!".repeat(100_000));
        assert!(error::<Base64>(&long).len() < 100);
        assert!(error::<Base64>("[1]").contains("bytes as base64"));
    }

    #[test]
    fn a_session_id_is_secret() {
        let id = SessionId::random().unwrap();
        assert_eq!(id.as_str().len(), 32);
        assert_ne!(id, SessionId::random().unwrap());
        assert_eq!(id, SessionId::from(id.as_str().to_owned()));
        assert_ne!(id, SessionId::from(id.as_str()[..31].to_owned()));
        assert_ne!(SessionId::from(String::new()), id);
        let params = InitializeParams { client_name: "c".into(), resume_session_id: Some(id.clone()), plimsoll: None };
        assert!(!format!("{params:?}").contains(id.as_str()));
    }
}
