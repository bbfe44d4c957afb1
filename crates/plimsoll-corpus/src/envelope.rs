//! A value put into a message: `M(x)` of the corpus.
//!
//! The value is streamed through, so a message costs no more than its value. Whether the id comes before or after the
//! value matters to whoever answers an oversized request by its id: last is the harder case.

use crate::generator::Generator;

/// The id that [`Envelope::wrap`] gives its messages, as JSON text.
pub const ID: &str = "7";

/// The method that [`Envelope::wrap`] gives its messages.
pub const METHOD: &str = "corpus/shape";

/// Which JSON-RPC is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// Without `jsonrpc`, as exec-servers do.
    Bare,
    /// With `"jsonrpc":"2.0"`.
    Standard,
}

/// Where the id stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IdPlacement {
    /// Before the value.
    First,
    /// After the value.
    Last,
}

/// The kind of message that a value is put into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Envelope {
    /// As the `params` of a request.
    Request(IdPlacement),
    /// As the `params` of a notification.
    Notification,
    /// As the `result` of a response.
    Response(IdPlacement),
}

impl Envelope {
    /// Every envelope, for tests that try them all.
    pub const ALL: [Envelope; 5] = [
        Envelope::Request(IdPlacement::First),
        Envelope::Request(IdPlacement::Last),
        Envelope::Notification,
        Envelope::Response(IdPlacement::First),
        Envelope::Response(IdPlacement::Last),
    ];

    /// The message of this kind around `value`, with [`ID`] and [`METHOD`].
    pub fn wrap(self, dialect: Dialect, value: Generator) -> Generator {
        match self {
            Envelope::Request(placement) => request(dialect, placement, ID, METHOD, value),
            Envelope::Notification => notification(dialect, METHOD, value),
            Envelope::Response(placement) => response(dialect, placement, ID, value),
        }
    }

    /// How many values a message has beside the wrapped one: the object itself, `jsonrpc`, `id`, `method`. The depth
    /// is always one more.
    pub const fn values(self, dialect: Dialect) -> u64 {
        let members = match self {
            Envelope::Request(_) => 2,
            Envelope::Notification | Envelope::Response(_) => 1,
        };
        let version = match dialect {
            Dialect::Bare => 0,
            Dialect::Standard => 1,
        };
        1 + version + members
    }
}

/// A request. `id` is JSON text; `method` is put between quotes as it is.
pub fn request(dialect: Dialect, placement: IdPlacement, id: &str, method: &str, params: Generator) -> Generator {
    let version = version(dialect);
    match placement {
        IdPlacement::First => {
            around(format!(r#"{{{version}"id":{id},"method":"{method}","params":"#), params, "}".into())
        }
        IdPlacement::Last => {
            around(format!(r#"{{{version}"method":"{method}","params":"#), params, format!(r#","id":{id}}}"#))
        }
    }
}

/// A notification. `method` is put between quotes as it is.
pub fn notification(dialect: Dialect, method: &str, params: Generator) -> Generator {
    around(format!(r#"{{{}"method":"{method}","params":"#, version(dialect)), params, "}".into())
}

/// A successful response. `id` is JSON text.
pub fn response(dialect: Dialect, placement: IdPlacement, id: &str, result: Generator) -> Generator {
    let version = version(dialect);
    match placement {
        IdPlacement::First => around(format!(r#"{{{version}"id":{id},"result":"#), result, "}".into()),
        IdPlacement::Last => around(format!(r#"{{{version}"result":"#), result, format!(r#","id":{id}}}"#)),
    }
}

fn around(head: String, value: Generator, tail: String) -> Generator {
    Generator::default().text(head.into_bytes()).then(value).text(tail.into_bytes())
}

fn version(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Bare => "",
        Dialect::Standard => r#""jsonrpc":"2.0","#,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value() -> Generator {
        Generator::default().text(&b"[0]"[..])
    }

    #[test]
    fn every_envelope_is_spelled_as_documented() {
        let texts = Envelope::ALL.map(|envelope| {
            [Dialect::Standard, Dialect::Bare]
                .map(|dialect| String::from_utf8(envelope.wrap(dialect, value()).into_bytes()).expect("ASCII"))
        });
        let right = [
            r#""id":7,"method":"corpus/shape","params":[0]}"#,
            r#""method":"corpus/shape","params":[0],"id":7}"#,
            r#""method":"corpus/shape","params":[0]}"#,
            r#""id":7,"result":[0]}"#,
            r#""result":[0],"id":7}"#,
        ];
        for ([standard, bare], right) in texts.iter().zip(right) {
            assert_eq!(standard, &format!(r#"{{"jsonrpc":"2.0",{right}"#));
            assert_eq!(bare, &format!("{{{right}"));
        }
    }
}
