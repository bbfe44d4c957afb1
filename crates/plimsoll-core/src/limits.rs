//! The operator's numbers: one [`Limits`] value, made by a profile and changed by chained setters.
//!
//! Every limit says which attack it stops, what happens when it is passed, the memory it allows in the worst case, and
//! why its default is what it is. A limit is a [`Bound`] or a [`Deadline`]: zero cannot be written, and *no limit* is a
//! named choice. This file does not enforce anything; the scanner, the deframer and the peers do.

use std::fmt;
use std::num::NonZeroU64;
use std::time::Duration;

/// One kibibyte, in bytes.
pub const KIB: u64 = 1024;
/// One mebibyte, in bytes.
pub const MIB: u64 = 1024 * KIB;

/// An upper bound that cannot be zero by accident.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bound {
    /// The limit: this many are accepted, one more is refused.
    AtMost(NonZeroU64),
    /// No limit. For the control tests, and for operators who mean it.
    Unbounded,
}

impl Bound {
    /// A bound of `n`.
    ///
    /// # Panics
    ///
    /// When `n` is zero; in a `const` this is a compile error. Input from users goes through [`Limits::set`], which
    /// returns an error instead.
    #[allow(clippy::panic, reason = "a zero written in the program is a defect of the program, found at its first run")]
    pub const fn at_most(n: u64) -> Self {
        match NonZeroU64::new(n) {
            Some(n) => Self::AtMost(n),
            None => panic!("a bound cannot be zero; Bound::Unbounded switches a limit off"),
        }
    }

    /// The bound as a number; [`Bound::Unbounded`] is `u64::MAX`, which no count reaches.
    pub const fn ceiling(self) -> u64 {
        match self {
            Self::AtMost(n) => n.get(),
            Self::Unbounded => u64::MAX,
        }
    }
}

impl From<NonZeroU64> for Bound {
    fn from(n: NonZeroU64) -> Self {
        Self::AtMost(n)
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtMost(n) => n.fmt(f),
            Self::Unbounded => f.write_str("off"),
        }
    }
}

/// A span of time after which waiting ends, or the named choice to wait for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Deadline {
    /// Waiting ends after this long.
    After(Duration),
    /// Waiting does not end by itself.
    Never,
}

impl Deadline {
    /// A deadline in whole seconds.
    pub const fn seconds(seconds: u64) -> Self {
        Self::After(Duration::from_secs(seconds))
    }

    /// The span, or `None` for [`Deadline::Never`].
    pub const fn span(self) -> Option<Duration> {
        match self {
            Self::After(span) => Some(span),
            Self::Never => None,
        }
    }
}

impl fmt::Display for Deadline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::After(span) => write!(f, "{span:?}"),
            Self::Never => f.write_str("off"),
        }
    }
}

/// What is done with an object that holds a key twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DuplicateKeys {
    /// Refused, at any depth; keys are compared after unescaping. Two decoders that pick different members of a pair
    /// disagree about what was said; RFC 8259 section 4 calls the result unpredictable.
    Refuse,
    /// Let through, except for the known members of the envelope, which are never ambiguous.
    Accept,
}

impl fmt::Display for DuplicateKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Refuse => "refuse",
            Self::Accept => "off",
        })
    }
}

/// Why a limit given by name was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LimitError {
    /// No limit has this name.
    #[error("there is no limit named `{0}`")]
    Unknown(String),
    /// The value is not one that this limit takes.
    #[error("`{value}` is no value for {name}: {wanted}")]
    Value {
        /// The limit's name.
        name: &'static str,
        /// What was given.
        value: String,
        /// What would be taken.
        wanted: &'static str,
    },
}

/// A limit's value as text, so that flags and configuration files share one parser.
trait Setting: Sized + fmt::Display {
    const WANTED: &'static str;
    fn parse(text: &str) -> Option<Self>;
}

impl Setting for Bound {
    const WANTED: &'static str = "a number above zero, with KiB, MiB or GiB after it if wanted, or `off`";

    fn parse(text: &str) -> Option<Self> {
        if text == "off" {
            return Some(Self::Unbounded);
        }
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at_checked(digits)?;
        let factor = match unit.trim() {
            "" | "B" => 1,
            "KiB" => KIB,
            "MiB" => MIB,
            "GiB" => 1024 * MIB,
            _ => return None,
        };
        NonZeroU64::new(number.parse::<u64>().ok()?.checked_mul(factor)?).map(Self::AtMost)
    }
}

impl Setting for Deadline {
    const WANTED: &'static str = "a duration such as `500ms`, `10s` or `2m`, or `off`";

    fn parse(text: &str) -> Option<Self> {
        if text == "off" {
            return Some(Self::Never);
        }
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at_checked(digits)?;
        let number = number.parse::<u64>().ok().filter(|n| *n > 0)?;
        match unit {
            "ms" => Some(Self::After(Duration::from_millis(number))),
            "s" | "" => Some(Self::seconds(number)),
            "m" => Some(Self::seconds(number.checked_mul(60)?)),
            _ => None,
        }
    }
}

impl Setting for DuplicateKeys {
    const WANTED: &'static str = "`refuse` or `off`";

    fn parse(text: &str) -> Option<Self> {
        match text {
            "refuse" => Some(Self::Refuse),
            "off" => Some(Self::Accept),
            _ => None,
        }
    }
}

macro_rules! limits {
    ($( $(#[$doc:meta])* $name:ident, $with:ident: $kind:ty = $default:expr; )*) => {
        /// Every limit of a peer, by name.
        ///
        /// ```
        /// use plimsoll_core::{Bound, Limits};
        ///
        /// let limits = Limits::mcp().with_message_bytes(Bound::at_most(4 * 1024 * 1024));
        /// assert_eq!(limits.json_values(), Bound::at_most(262_144));
        /// ```
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct Limits {
            $( $name: $kind, )*
        }

        impl Default for Limits {
            fn default() -> Self {
                Self { $( $name: $default, )* }
            }
        }

        impl Limits {
            /// The names of all limits, in the order of the documentation.
            pub const NAMES: &'static [&'static str] = &[$( stringify!($name), )*];

            $(
                $(#[$doc])*
                pub const fn $name(&self) -> $kind {
                    self.$name
                }

                #[doc = concat!("Sets [`", stringify!($name), "`](Self::", stringify!($name), ").")]
                #[must_use]
                pub const fn $with(mut self, value: $kind) -> Self {
                    self.$name = value;
                    self
                }
            )*

            /// Sets a limit by its name, as flags and configuration files do. Sizes take `KiB`, `MiB` and `GiB`,
            /// durations `ms`, `s` and `m`; `off` switches a limit off.
            ///
            /// # Errors
            ///
            /// [`LimitError`], when the name or the value is none; the limits are then unchanged.
            pub fn set(&mut self, name: &str, value: &str) -> Result<(), LimitError> {
                match name {
                    $( stringify!($name) => {
                        self.$name = Setting::parse(value).ok_or_else(|| LimitError::Value {
                            name: stringify!($name),
                            value: value.chars().take(64).collect(),
                            wanted: <$kind as Setting>::WANTED,
                        })?;
                        Ok(())
                    } )*
                    _ => Err(LimitError::Unknown(name.chars().take(64).collect())),
                }
            }
        }

        /// All limits in one line, as servers print them at start.
        impl fmt::Display for Limits {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let mut separator = "";
                $(
                    write!(f, "{separator}{}={}", stringify!($name), self.$name)?;
                    separator = " ";
                )*
                let _ = separator;
                Ok(())
            }
        }
    };
}

limits! {
    /// The load line: bytes that one process holds on behalf of all its peers together.
    ///
    /// Attack: many peers, each within its own limits. Past it a message is refused as `overloaded`, by id, and what
    /// was stored of it is given back. Worst case: this number itself, beside a constant base.
    /// Default 256 MiB: room for several of the largest legal messages at once.
    memory, with_memory: Bound = Bound::at_most(256 * MIB);

    /// The most that one connection may hold of [`memory`](Self::memory).
    ///
    /// Attack: one peer that takes all the room. Past it that peer's message is refused as `overloaded`.
    /// Worst case: this number a connection. Default 128 MiB, half of the default memory.
    cap, with_cap: Bound = Bound::at_most(128 * MIB);

    /// The length of one message in bytes, as sent; the newline and a carriage return before it are not counted.
    ///
    /// Attack: one endless message. Refused (`messageBytes`) at the first byte over it; the rest is read without being
    /// kept and the request is answered by its id. Worst case: this + 64 KiB a message that is arriving.
    /// Default 16 MiB, the line bound of the official Rust MCP SDK; a bound of 1 MiB broke real downloads.
    message_bytes, with_message_bytes: Bound = Bound::at_most(16 * MIB);

    /// How many bytes of one refused message are read to find its end and its id.
    ///
    /// Attack: a message that never ends. Past it the connection closes (`skipBytes`) after the request was answered, if
    /// its id was readable. Worst case: no memory, only time. Default: four times the default `message_bytes`.
    skip_bytes, with_skip_bytes: Bound = Bound::at_most(64 * MIB);

    /// JSON values in one message: every scalar, array and object, the envelope included; keys do not count.
    ///
    /// Attack: `[0,0,...]`, two bytes on the wire and 16 to 72 in memory. Refused (`jsonValues`) at the first byte of
    /// the value that is one too many. Worst case: a decoder's bytes a value times this.
    /// Default 262,144: a listing of 50,000 files stays below it.
    json_values, with_json_values: Bound = Bound::at_most(262_144);

    /// Containers open at once, the envelope included.
    ///
    /// Attack: `[[[[...`, which overflows the stack of recursive decoders. Refused (`depth`) at the container that is one
    /// too deep. Worst case: 4 bytes and one bit a level. Default 127, what `serde_json` accepts.
    depth, with_depth: Bound = Bound::at_most(127);

    /// Whether an object may hold a key twice.
    ///
    /// Attack: a message that means different things to a checker and to a decoder. Refused (`duplicateKey`) when the
    /// object closes, the error naming the offset. Worst case: 24 bytes a key of the objects open at once.
    duplicate_keys, with_duplicate_keys: DuplicateKeys = DuplicateKeys::Refuse;

    /// The length of one string value in bytes, as sent.
    ///
    /// Attack: one string that a decoder must hold twice. Refused (`stringBytes`) at the first byte over it.
    /// Worst case: within `message_bytes`. Default: off, so that `message_bytes` alone rules; others had to raise
    /// such a bound again and again.
    string_bytes, with_string_bytes: Bound = Bound::Unbounded;

    /// The length of one object key in bytes, as sent.
    ///
    /// Attack: keys of megabytes, which maps keep and errors echo. Refused (`keyBytes`) at the first byte over it.
    /// Worst case: within `message_bytes`. Default 64 KiB: keys are names, and paths where maps are keyed by them.
    key_bytes, with_key_bytes: Bound = Bound::at_most(64 * KIB);

    /// The length of one number in bytes, as sent.
    ///
    /// Attack: a million digits, quadratic in big-number decoders. Refused (`numberBytes`) at the first byte over it.
    /// Worst case: within `message_bytes`. Default 1,024: every number a double or a 128-bit integer can hold.
    number_bytes, with_number_bytes: Bound = Bound::at_most(KIB);

    /// The length of a message's `id` in bytes, as sent, without the quotes.
    ///
    /// Attack: ids of megabytes, kept in tables and sent back. Refused (`idBytes`); such an id is not readable.
    /// Worst case: this a request in flight. Default 1 KiB.
    id_bytes, with_id_bytes: Bound = Bound::at_most(KIB);

    /// The length of a message's `method` in bytes, as sent, without the quotes.
    ///
    /// Attack: method names of megabytes, which reach logs. Refused (`methodBytes`). Worst case: this a request.
    /// Default 1 KiB.
    method_bytes, with_method_bytes: Bound = Bound::at_most(KIB);

    /// Requests of the peer that have not been answered yet, up to the last byte of the reply.
    ///
    /// Attack: thousands of requests to a handler that hangs. One more is refused (`inFlight`, retryable).
    /// Worst case: this times a request's cost, within `cap`. Default 256.
    in_flight, with_in_flight: Bound = Bound::at_most(256);

    /// Our calls that wait for an answer.
    ///
    /// Attack: a peer that never answers. One more call fails at once (`pending`). Worst case: this times a
    /// call's table entry. Default 1,024.
    pending, with_pending: Bound = Bound::at_most(1_024);

    /// Bytes of messages waiting to be written to one peer; one that finds no room waits for it.
    ///
    /// Attack: a peer that asks and does not read. Senders wait; after [`stall_deadline`](Self::stall_deadline) without
    /// progress the connection closes. Worst case: this a connection, or one message larger than it.
    /// Default 16 MiB.
    outgoing_bytes, with_outgoing_bytes: Bound = Bound::at_most(16 * MIB);

    /// Bytes of the peer's notifications that wait to be handled, one after another; above it reading pauses.
    ///
    /// Attack: notifications faster than they are handled. Nothing is dropped: the peer is held back.
    /// Worst case: this + one message a connection. Default 1 MiB.
    notification_bytes, with_notification_bytes: Bound = Bound::at_most(MIB);

    /// How long a call of ours waits for its answer.
    ///
    /// Attack: a peer that never answers. The call fails (`callDeadline`). Default off: a long poll is legal.
    call_deadline, with_call_deadline: Deadline = Deadline::Never;

    /// How long writing may make no progress at all.
    ///
    /// Attack: a peer that never reads. The connection closes (`stallDeadline`). Default 60 s.
    stall_deadline, with_stall_deadline: Deadline = Deadline::seconds(60);

    /// How long a process that was told to end (TERM) has before it is killed, and how long the output of an ended
    /// process may be held open by another.
    ///
    /// Attack: a process that ignores TERM. Default 2 s.
    grace, with_grace: Deadline = Deadline::seconds(2);

    /// How long requests received before the end of the input may still take to be answered.
    ///
    /// Attack: a peer that leaves while its requests hang. Default 2 s.
    drain, with_drain: Deadline = Deadline::seconds(2);

    /// Processes of one connection that run at once.
    ///
    /// Attack: one process a message. One more is refused (`processes`, retryable). Worst case: this times
    /// a process's pipes and tasks. Default 64.
    processes, with_processes: Bound = Bound::at_most(64);

    /// Bytes waiting to be written to one process's standard input.
    ///
    /// Attack: writes to a process that never reads. A write that finds no room waits
    /// [`write_wait`](Self::write_wait), queued whole or not at all. Worst case: this a process, or one write larger
    /// than it. Default 1 MiB.
    stdin_bytes, with_stdin_bytes: Bound = Bound::at_most(MIB);

    /// `writeId`s remembered a process, so that a repeated write is not written twice.
    ///
    /// Attack: endless fresh ids. The oldest is forgotten. Worst case: 24 bytes each. Default 4,096, as the reference.
    write_ids, with_write_ids: Bound = Bound::at_most(4_096);

    /// How long a write to a process waits for room in its standard input.
    ///
    /// Attack: a process that never reads. The write is refused (`writeWait`, retryable). Default 10 s.
    write_wait, with_write_wait: Deadline = Deadline::seconds(10);
}

impl Limits {
    /// For Model Context Protocol peers: the defaults, and calls that end after 60 s.
    #[must_use]
    pub fn mcp() -> Self {
        Self::default().with_call_deadline(Deadline::seconds(60))
    }

    /// For language servers: the defaults.
    #[must_use]
    pub fn lsp() -> Self {
        Self::default()
    }

    /// For the exec-server's protocol: messages of 64 MiB, and numbers of any length, as the reference takes. Such a
    /// message is held about three times while it is decoded, so a connection may hold all of the default memory.
    #[must_use]
    pub fn exec() -> Self {
        Self::default()
            .with_cap(Bound::at_most(256 * MIB))
            .with_message_bytes(Bound::at_most(64 * MIB))
            .with_skip_bytes(Bound::at_most(256 * MIB))
            .with_number_bytes(Bound::Unbounded)
    }

    /// For peers across a network: the defaults.
    #[must_use]
    pub fn network() -> Self {
        Self::default()
    }

    /// Makes limits that cannot hold together hold, and says what was changed, a sentence each.
    ///
    /// A connection's `cap` is at most `memory`; a message must fit into `cap` beside its keys; `skip_bytes` is at
    /// least `message_bytes`.
    pub fn clamp(&mut self) -> Vec<String> {
        // What the largest message holds beside its bytes: slack, and 24 bytes a key. There are no more keys than values,
        // and one takes at least six bytes of the message, so that five times the message is always enough.
        const SLACK: u64 = 128 * KIB;
        const KEY: u64 = 24;
        let mut changed = Vec::new();
        let mut lower = |name: &str, bound: &mut Bound, most: u64, why: &str| {
            if bound.ceiling() > most && most != u64::MAX {
                changed.push(format!("{name} lowered from {bound} to {most}: {why}"));
                *bound = NonZeroU64::new(most).map_or(*bound, Bound::AtMost);
            }
        };
        lower("cap", &mut self.cap, self.memory.ceiling(), "a connection cannot hold more than memory");
        let cap = self.cap.ceiling();
        let room = cap - SLACK.min(cap / 2);
        let fits = (room / 5).max(room.saturating_sub(self.json_values.ceiling().saturating_mul(KEY))).max(1);
        let fits = if cap == u64::MAX { cap } else { fits };
        lower("message_bytes", &mut self.message_bytes, fits, "a message must fit into its connection's cap");
        lower("outgoing_bytes", &mut self.outgoing_bytes, cap, "a queue cannot be larger than its connection's cap");
        let least = self.message_bytes.ceiling();
        if self.skip_bytes.ceiling() < least {
            changed.push(format!("skip_bytes raised from {} to {least}: a message must be readable", self.skip_bytes));
            self.skip_bytes = self.message_bytes;
        }
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_set_by_its_name_with_units_and_off() {
        let mut limits = Limits::default();
        limits.set("message_bytes", "4MiB").unwrap();
        limits.set("depth", "off").unwrap();
        limits.set("grace", "500ms").unwrap();
        assert_eq!(limits.message_bytes(), Bound::at_most(4 * MIB));
        assert_eq!(limits.depth(), Bound::Unbounded);
        assert_eq!(limits.grace(), Deadline::After(Duration::from_millis(500)));
    }

    #[test]
    fn zero_and_nonsense_are_refused_by_name_and_change_nothing() {
        let mut limits = Limits::default();
        for (name, value) in [("depth", "0"), ("depth", "-1"), ("depth", "9XiB"), ("grace", "0s"), ("grace", "1h")] {
            let error = limits.set(name, value).unwrap_err();
            assert!(error.to_string().contains(name), "{error}");
        }
        assert_eq!(limits.set("no_such", "1"), Err(LimitError::Unknown("no_such".into())));
        assert_eq!(limits, Limits::default());
    }

    #[test]
    fn limits_that_do_not_fit_the_memory_are_clamped_and_say_so() {
        let mut limits = Limits::default().with_memory(Bound::at_most(MIB));
        let said = limits.clamp();
        assert_eq!(limits.cap(), Bound::at_most(MIB));
        assert!(limits.message_bytes().ceiling() < MIB, "it must fit beside its keys");
        assert!(said.iter().any(|line| line.starts_with("message_bytes lowered")), "{said:?}");
        assert!(limits.clamp().is_empty(), "clamping twice changes nothing");
    }

    #[test]
    fn the_defaults_need_no_clamping() {
        for mut limits in [Limits::default(), Limits::mcp(), Limits::lsp(), Limits::exec(), Limits::network()] {
            assert_eq!(limits.clamp(), Vec::<String>::new());
        }
    }
}
