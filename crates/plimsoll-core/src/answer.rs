//! What is answered to what was refused: one enum, one table.
//!
//! | what arrived | answer |
//! |---|---|
//! | no `method`, and the readable id is that of a waiting call of ours | the call fails, no reply |
//! | `result` or `error` without `method` | a malformed response is never answered |
//! | an object with a readable id | an error under that id |
//! | an object with `method` whose `id` is there but cannot be read | an error with id `null` (`Bare`: -1) |
//! | `method` without `id` | `Standard`: counted, or the connection closes, by profile. `Bare`: an error with id -1, paced |
//! | anything else: text, scalars, batches, objects that are no JSON-RPC | `Standard`: noise, never answered, for answers to noise make storms. `Bare`: an error with id -1, paced |
//!
//! The code is -32700 for what is not JSON or not Unicode and has a readable id (`Bare`: -32600), [`OVERLOADED`] when
//! there was no room, and -32600 for every other refusal. A paced answer is sent at most ten times a second a
//! connection.

use crate::id::Id;
use crate::message::{Dialect, Refused, SeenId};
use crate::reason::{Class, Reason, Refusal};

/// Not JSON (JSON-RPC 2.0 section 5.1).
pub const PARSE_ERROR: i64 = -32700;
/// JSON, but no valid request.
pub const INVALID_REQUEST: i64 = -32600;
/// No such method.
pub const METHOD_NOT_FOUND: i64 = -32601;
/// The parameters do not fit the method.
pub const INVALID_PARAMS: i64 = -32602;
/// The handler failed.
pub const INTERNAL_ERROR: i64 = -32603;
/// No room now, and the handler has not run. Outside the range that JSON-RPC 2.0 reserves, and outside those that
/// protocols on it use.
pub const OVERLOADED: i64 = -31009;

/// What to do about a refused message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Close the connection: a notification that must not be lost was refused.
    Close,
    /// An error reply.
    Error {
        /// The id to answer under; without one, [`Dialect`] says what stands in its place.
        id: Option<Id>,
        /// The error's code.
        code: i64,
        /// Whether it counts towards the ten a second.
        paced: bool,
    },
    /// The call of ours with this id fails; nothing is sent.
    FailCall(Id),
    /// It is counted, and that is all.
    Nothing,
}

/// What a connection's protocol says about answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AnswerRules {
    /// Which JSON-RPC is spoken.
    pub dialect: Dialect,
    /// Whether losing a notification breaks the peers' shared state, so that the connection must close instead.
    pub notifications_are_vital: bool,
}

impl AnswerRules {
    /// The answer to `refused`. `waiting` says whether a call of ours waits for an answer under an id.
    pub fn answer(&self, refused: &Refused, waiting: impl FnOnce(&Id) -> bool) -> Answer {
        let code = error_code(self.dialect, &refused.refusal);
        let error = |id, paced| Answer::Error { id, code, paced };
        if !refused.method {
            match &refused.id {
                SeenId::Readable(id) if waiting(id) => return Answer::FailCall(id.clone()),
                _ if refused.response => return Answer::Nothing,
                SeenId::Readable(id) if answers_without_method(&refused.refusal) => {
                    return error(Some(id.clone()), false);
                }
                _ => return self.noise(code),
            }
        }
        match &refused.id {
            SeenId::Readable(id) => error(Some(id.clone()), false),
            SeenId::Unreadable => {
                // What is wrong with it first of all is its id.
                let code = if code == PARSE_ERROR { INVALID_REQUEST } else { code };
                Answer::Error { id: None, code, paced: false }
            }
            SeenId::Absent if self.notifications_are_vital => Answer::Close,
            SeenId::Absent => self.noise(code),
        }
    }

    fn noise(&self, code: i64) -> Answer {
        match self.dialect {
            Dialect::Standard => Answer::Nothing,
            Dialect::Bare => Answer::Error { id: None, code, paced: true },
        }
    }
}

/// Whether an object with an id is answered although no `method` was seen: the rest could not be understood, so it may
/// have been a request.
fn answers_without_method(refusal: &Refusal) -> bool {
    matches!(refusal.reason.class(), Class::Grammar | Class::Encoding | Class::Message | Class::Room)
}

/// The code of an error reply to a refusal.
pub fn error_code(dialect: Dialect, refusal: &Refusal) -> i64 {
    match refusal.reason.class() {
        Class::Grammar | Class::Encoding if dialect == Dialect::Standard => PARSE_ERROR,
        Class::Room => OVERLOADED,
        Class::End if refusal.reason == Reason::Drain => INTERNAL_ERROR,
        _ => INVALID_REQUEST,
    }
}

/// An error reply to a refusal, as JSON text without framing.
///
/// `data` holds `reason`, `limit`, `observed`, `offset` and `scope` as far as they are known, and `retryable`.
pub fn render_refusal(dialect: Dialect, id: Option<&Id>, code: i64, refusal: &Refusal) -> Vec<u8> {
    use std::fmt::Write;
    let mut text = String::with_capacity(256);
    let version = if dialect == Dialect::Standard { "\"jsonrpc\":\"2.0\"," } else { "" };
    let nobody = if dialect == Dialect::Standard { "null" } else { "-1" };
    let id = id.map_or(nobody, Id::as_json);
    // Writing to a String does not fail; the sentence holds no character that JSON escapes but quotes.
    let sentence = refusal.to_string().replace('"', "\\\"");
    let _ = write!(
        text,
        "{{{version}\"id\":{id},\"error\":{{\"code\":{code},\"message\":\"{sentence}\",\"data\":{{\"reason\":\"{}\"",
        refusal.reason
    );
    for (name, value) in [("limit", refusal.limit), ("observed", refusal.observed), ("offset", refusal.offset)] {
        if let Some(value) = value {
            let _ = write!(text, ",\"{name}\":{value}");
        }
    }
    if let Some(scope) = refusal.scope {
        let _ = write!(text, ",\"scope\":\"{scope}\"");
    }
    let _ = write!(text, ",\"retryable\":{}}}}}}}", refusal.reason.retryable());
    text.into_bytes()
}
