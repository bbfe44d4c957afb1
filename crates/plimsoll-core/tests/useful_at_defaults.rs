//! What honest peers send passes at default limits and default memory: a bound that refuses these is wrong.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "helpers of tests")]

mod common;

use plimsoll_core::{Budget, Dialect, Limits, Line, LineDeframer, Received};
use plimsoll_corpus::{Form, Useful, useful};

const PROFILES: [fn() -> Limits; 5] = [Limits::default, Limits::mcp, Limits::lsp, Limits::exec, Limits::network];

#[test]
fn everything_useful_is_delivered_at_the_limits_of_every_profile() {
    for useful in useful() {
        let mut text = useful.text().into_bytes();
        if useful.form() == Form::Message {
            text.push(b'\n');
        }
        for limits in PROFILES {
            for dialect in [Dialect::Standard, Dialect::Bare] {
                assert_delivered(&useful, &text, &limits(), dialect);
            }
        }
    }
}

fn assert_delivered(useful: &Useful, text: &[u8], limits: &Limits, dialect: Dialect) {
    let process = Budget::new(limits.memory());
    let connection = process.child(limits.cap());
    let mut deframer = LineDeframer::new(limits, dialect, &connection);
    // All of them are kept, as by handlers that have not come to them yet.
    let mut messages = Vec::new();
    for piece in text.chunks(8 * 1024) {
        common::push(&mut deframer, piece, |line| match line {
            Line::Received(Received::Message(message)) => messages.push(message),
            Line::Received(Received::Refused(refused)) => panic!("{}: {}", useful.name(), refused.refusal),
            Line::Overrun { reason, .. } => panic!("{}: {reason}", useful.name()),
        });
    }
    assert_eq!(messages.len(), useful.messages(), "{}", useful.name());
    assert_eq!(text.len() as u64, messages.iter().map(|message| message.wire_bytes() + 1).sum::<u64>());
}

#[test]
fn the_list_is_the_one_of_the_design() {
    let list = useful();
    let bytes = |name: &str| list.iter().find(|useful| useful.name() == name).unwrap().text().remaining_bytes();
    assert!((95_000..=105_000).contains(&bytes("toolsList")));
    assert_eq!(bytes("escapes"), 12_600_000);
    assert_eq!(bytes("textResult"), 10_485_869);
    assert!(bytes("base64") > 15 << 20);
    assert!(bytes("toolArgument") > 1_040_000);
    let count = |name: &str| list.iter().find(|useful| useful.name() == name).unwrap().messages();
    assert_eq!((count("pipelinedCalls"), count("notifications")), (200, 4_000));
}
