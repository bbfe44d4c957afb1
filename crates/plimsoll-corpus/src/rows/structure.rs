//! Rows 1 to 7: messages that are small on the wire and large as a tree, or deeper than a stack.

use super::{array, fixed, within};
use crate::expect::{Facts, Kind, Reason};
use crate::generator::Generator;
use crate::reproduction::{REPRODUCTION_ZEROES, reproduction};
use crate::shape::{Built, Form, Shape};

pub(crate) const SHAPES: &[Shape] = &[
    Shape::sized(1, "flatZeroes", Form::Value, VALUES, |size| array(size, &b"0"[..], 1, 0)),
    Shape::sized(1, "flatNulls", Form::Value, VALUES, |size| array(size, &b"null"[..], 1, 0)),
    Shape::sized(1, "powerOfTwoPlusOne", Form::Value, VALUES, power_of_two_plus_one),
    Shape::fixed(1, "reproduction", Form::Message, VALUES, |_| Built {
        text: reproduction(),
        facts: Facts { values: 3 + REPRODUCTION_ZEROES as u64, depth: 2, kind: Kind::Fault(Reason::JsonrpcVersion) },
    }),
    Shape::sized(2, "tinyObjects", Form::Value, VALUES, |size| array(size, &br#"{"":0}"#[..], 2, 1)),
    Shape::sized(
        3,
        "comb",
        Form::Value,
        "refused by the number of values: the depth alone would let it through",
        |size| array(size, nested("[", "]", TOOTH_DEPTH), TOOTH_DEPTH as u64, TOOTH_DEPTH as u64),
    ),
    Shape::sized(4, "singletons", Form::Value, VALUES, |size| array(size, &b"[0]"[..], 2, 1)),
    Shape::sized(4, "emptyObjects", Form::Value, VALUES, |size| array(size, &b"{}"[..], 1, 1)),
    Shape::sized(4, "emptyArrays", Form::Value, VALUES, |size| array(size, &b"[]"[..], 1, 1)),
    Shape::sized(4, "emptyStrings", Form::Value, VALUES, |size| array(size, &br#""""#[..], 1, 0)),
    Shape::sized(
        5,
        "typedMultiplier",
        Form::Value,
        "decoded into a vector of structs of 500 bytes with optional members, it stops at decoded_bytes: the size of \
         an element is charged before the element is pushed",
        |size| {
            let built = array(size, &b"{}"[..], 1, 1);
            built.kind(Kind::Typed)
        },
    )
    .by_default(786_000),
    Shape::sized(6, "openBrackets", Form::Value, DEPTH, |size| Built {
        text: Generator::default().repeat(&b"["[..], size.max(1)),
        facts: Facts { values: size.max(1) as u64, depth: size.max(1) as u64, kind: Kind::Fault(Reason::InvalidJson) },
    })
    .by_default(100_000),
    Shape::sized(6, "nestedArrays", Form::Value, DEPTH, nested_arrays).by_default(200_000),
    Shape::sized(6, "nestedObjects", Form::Value, DEPTH, nested_objects).by_default(600_000),
    Shape::sized(6, "nestedAlternating", Form::Value, DEPTH, |size| {
        let pairs = (size.saturating_sub(1) / r#"[{"a":}]"#.len()).max(1);
        nest("[{\"a\":", "0", "}]", pairs, 2).padded(size)
    })
    .by_default(400_000),
    Shape::sized(7, "deepUnderUnknown", Form::Value, DEPTH, |size| {
        within(r#"{"known":1,"unknown":"#, "}", 2, size, nested_arrays)
    })
    .by_default(200_000),
    Shape::sized(7, "deepUnderMeta", Form::Value, DEPTH, |size| within(r#"{"_meta":"#, "}", 1, size, nested_objects))
        .by_default(600_000),
    Shape::sized(7, "deepErrorData", Form::Message, DEPTH, |size| {
        let head = r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32000,"message":"deep","data":"#;
        let mut built = within(head, "}}", 6, size, nested_arrays);
        // `within` knows of one container and `head` opens two.
        built.facts.depth += 1;
        built
    })
    .by_default(200_000),
    Shape::sized(7, "deepUnknownMember", Form::Message, DEPTH, |size| {
        let head = r#"{"jsonrpc":"2.0","id":7,"method":"corpus/shape","unknown":"#;
        within(head, "}", 4, size, nested_arrays)
    })
    .by_default(200_000),
    Shape::fixed(7, "deepestAllowed", Form::Message, "accepted: 127 containers are legal", |_| {
        let text =
            [br#"{"jsonrpc":"2.0","id":7,"method":"corpus/shape","params":"#.as_slice(), &nested("[", "]", 126), b"}"];
        fixed(text.concat(), 4 + 126, 127)
    }),
];

const VALUES: &str = "refused at the first value over the limit, before any typed allocation";
const DEPTH: &str = "refused at container 128, with a stack that does not grow";

/// Below the limit of 127 with the array and the message around it.
const TOOTH_DEPTH: usize = 120;

fn nested_arrays(size: usize) -> Built {
    let depth = (size / 2).max(1);
    nest("[", "", "]", depth, 1).padded(size)
}

fn nested_objects(size: usize) -> Built {
    let depth = (size.saturating_sub(1) / r#"{"a":}"#.len()).max(1);
    nest(r#"{"a":"#, "0", "}", depth, 1).padded(size)
}

/// `open` and `close` around `core`, `times` times; each time opens `containers`. A `core` that is not empty is one
/// value.
fn nest(open: &'static str, core: &'static str, close: &'static str, times: usize, containers: u64) -> Built {
    let text =
        Generator::default().repeat(open.as_bytes(), times).text(core.as_bytes()).repeat(close.as_bytes(), times);
    let depth = times as u64 * containers;
    Built { text, facts: Facts { values: depth + u64::from(!core.is_empty()), depth, kind: Kind::Plain } }
}

fn nested(open: &str, close: &str, times: usize) -> Vec<u8> {
    [open.repeat(times), close.repeat(times)].concat().into_bytes()
}

/// An array of 2^k + 1 numbers, which forces a growing vector into one more doubling, for the largest k that the size
/// has room for. What room is left makes the numbers longer.
fn power_of_two_plus_one(size: usize) -> Built {
    let most = size.saturating_sub(1) / 2;
    let elements = match most.saturating_sub(1).checked_ilog2() {
        Some(exponent) => (1 << exponent) + 1,
        None => 1,
    };
    let digits = size.saturating_sub(elements + 1).max(elements);
    let (width, wider) = (digits / elements, digits % elements);
    let narrow = "1".repeat(width);
    let wide = "1".repeat(width + 1);
    let text = Generator::default()
        .text(&b"["[..])
        .repeat([wide.as_bytes(), b","].concat(), wider)
        .repeat([narrow.as_bytes(), b","].concat(), elements - wider - 1)
        .text(narrow.into_bytes())
        .text(&b"]"[..]);
    Built { text, facts: Facts { values: 1 + elements as u64, depth: 1, kind: Kind::Plain } }
}
