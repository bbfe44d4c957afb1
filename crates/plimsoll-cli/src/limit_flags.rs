//! One flag for each limit, by the limit's name: `--message-bytes 4MiB`, `--depth off`.
//!
//! Names and values are the core's ([`Limits::NAMES`], [`Limits::set`]); a value is looked at when the command line is
//! parsed, so a bad one is told like any other bad argument. Only the words for `--help` are written here.

use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use plimsoll_core::{KIB, LimitError, Limits, MIB};

use crate::failure::Failure;

/// The limits that were given on the command line.
#[derive(Clone, Debug, Default)]
pub(crate) struct LimitFlags {
    // Each pair has passed `Limits::set`.
    given: Vec<(&'static str, String)>,
}

impl LimitFlags {
    /// Changes `limits` as the flags say.
    ///
    /// # Errors
    ///
    /// None from flags that were parsed: their values were looked at then.
    pub(crate) fn apply(&self, limits: &mut Limits) -> Result<(), LimitError> {
        self.given.iter().try_for_each(|(name, value)| limits.set(name, value))
    }

    /// Whether this limit was given.
    pub(crate) fn is_given(&self, name: &str) -> bool {
        self.given.iter().any(|(given, _)| *given == name)
    }

    /// The same flags, for another command of this program.
    pub(crate) fn as_arguments(&self) -> impl Iterator<Item = String> {
        self.given.iter().flat_map(|(name, value)| [format!("--{}", flag(name)), value.clone()])
    }
}

/// Refuses limits within which no output of a process could be carried, so that it does not wait for ever.
///
/// # Errors
///
/// The limit, its value, and the least that it must be.
pub(crate) fn suffice_for_processes(limits: &Limits) -> Result<(), Failure> {
    let least = [
        ("memory", limits.memory(), MIB),
        ("cap", limits.cap(), MIB),
        ("message_bytes", limits.message_bytes(), 64 * KIB),
    ];
    match least.into_iter().find(|(_, bound, least)| bound.ceiling() < *least) {
        Some((name, bound, least)) => Err(Failure::ours(format!(
            "{name} is {bound}, too little to carry what a process writes; --{} must be at least {}",
            flag(name),
            in_units(name, &least.to_string())
        ))),
        None => Ok(()),
    }
}

/// The flag of a limit, without its dashes.
pub(crate) fn flag(name: &str) -> String {
    name.replace('_', "-")
}

impl FromArgMatches for LimitFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut flags = Self::default();
        flags.update_from_arg_matches(matches)?;
        Ok(flags)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        for &name in Limits::NAMES {
            if let Some(value) = matches.get_one::<String>(name) {
                self.given.push((name, value.clone()));
            }
        }
        Ok(())
    }
}

impl Args for LimitFlags {
    fn augment_args(command: Command) -> Command {
        let defaults = Limits::default().to_string();
        Limits::NAMES.iter().fold(command, |command, &name| command.arg(argument(name, &defaults)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

fn argument(name: &'static str, defaults: &str) -> Arg {
    let (heading, help) = match HELP.iter().find(|(of, ..)| *of == name) {
        Some((_, Of::Message, help)) => ("Limits of one message, by default those of the profile `default`", *help),
        Some((_, Of::Connection, help)) => ("Limits of a connection and its processes", *help),
        None => ("Limits of a connection and its processes", ""),
    };
    let default = defaults.split(' ').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
    Arg::new(name)
        .long(flag(name))
        .value_name("LIMIT")
        .help(format!("{help} [{}]", in_units(name, default.unwrap_or_default())))
        .help_heading(heading)
        .allow_negative_numbers(true)
        .value_parser(move |value: &str| match Limits::default().set(name, value) {
            Ok(()) => Ok(value.to_owned()),
            Err(LimitError::Value { wanted, .. }) => Err(format!("it must be {wanted}")),
            Err(other) => Err(other.to_string()),
        })
}

/// A size as one would write it.
fn in_units(name: &str, value: &str) -> String {
    let is_size = name.ends_with("_bytes") || matches!(name, "memory" | "cap");
    match value.parse::<u64>() {
        Ok(n) if is_size && n % MIB == 0 => format!("{}MiB", n / MIB),
        Ok(n) if is_size && n % KIB == 0 => format!("{}KiB", n / KIB),
        _ => value.to_owned(),
    }
}

enum Of {
    Connection,
    Message,
}

const HELP: &[(&str, Of, &str)] = &[
    ("memory", Of::Message, "Bytes held for all peers together"),
    ("cap", Of::Message, "Bytes held for one connection"),
    ("message_bytes", Of::Message, "Length of a message"),
    ("skip_bytes", Of::Message, "How far the end of a refused message is looked for"),
    ("json_values", Of::Message, "JSON values in a message, keys not counted"),
    ("depth", Of::Message, "Containers open at once"),
    ("duplicate_keys", Of::Message, "Whether an object may hold a key twice: refuse or off"),
    ("string_bytes", Of::Message, "Length of a string"),
    ("key_bytes", Of::Message, "Length of a key"),
    ("number_bytes", Of::Message, "Length of a number"),
    ("id_bytes", Of::Message, "Length of a message's id"),
    ("method_bytes", Of::Message, "Length of a message's method"),
    ("in_flight", Of::Connection, "Requests of the peer that are not answered yet"),
    ("pending", Of::Connection, "Calls of ours that are not answered yet"),
    ("outgoing_bytes", Of::Connection, "Bytes that wait to be written to the peer"),
    ("notification_bytes", Of::Connection, "Bytes of notifications that wait to be handled"),
    ("call_deadline", Of::Connection, "How long a call of ours waits for its answer"),
    ("stall_deadline", Of::Connection, "How long writing may make no progress"),
    ("grace", Of::Connection, "How long a process has to end before it is killed"),
    ("drain", Of::Connection, "How long answers may take after the end of the input"),
    ("processes", Of::Connection, "Processes that run at once"),
    ("stdin_bytes", Of::Connection, "Bytes that wait to be written to one process"),
    ("write_ids", Of::Connection, "Write ids remembered for one process"),
    ("write_wait", Of::Connection, "How long a write waits for a process to read"),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Result<Limits, clap::Error> {
        let command = LimitFlags::augment_args(Command::new("test").no_binary_name(true));
        let flags = LimitFlags::from_arg_matches(&command.try_get_matches_from(arguments)?)?;
        let mut limits = Limits::default();
        flags.apply(&mut limits).unwrap();
        Ok(limits)
    }

    #[test]
    fn every_limit_has_a_flag_and_words_for_it_and_no_words_are_left_over() {
        let described: Vec<&str> = HELP.iter().map(|(name, ..)| *name).collect();
        assert_eq!(described, Limits::NAMES);
        let help = LimitFlags::augment_args(Command::new("test")).render_help().to_string();
        for name in Limits::NAMES {
            assert!(help.contains(&format!("--{} <LIMIT>", flag(name))), "{name}");
        }
        assert!(help.contains("Length of a message [16MiB]"), "{help}");
        assert!(help.contains("[262144]"), "a count is no size: {help}");
    }

    #[test]
    fn a_flag_sets_its_limit_and_no_other() {
        for name in Limits::NAMES {
            let flag = format!("--{}", flag(name));
            let mut wanted = Limits::default();
            wanted.set(name, "off").unwrap();
            assert_eq!(parse(&[&flag, "off"]).unwrap(), wanted, "{flag}");
        }
        assert_eq!(parse(&[]).unwrap(), Limits::default());
    }

    #[test]
    fn a_bad_value_is_refused_with_what_is_wanted() {
        for value in ["0", "-1", "many", "9XiB", ""] {
            let error = parse(&["--depth", value]).unwrap_err().to_string();
            assert!(error.contains("--depth") && error.contains("a number above zero"), "{value}: {error}");
        }
        assert!(parse(&["--duplicate-keys", "7"]).unwrap_err().to_string().contains("`refuse` or `off`"));
    }
}
