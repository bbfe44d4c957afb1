//! The message that began it: 4 MiB less one byte, legal in every respect, and 228 MiB of memory in a program that
//! decodes it into a tree.

use crate::generator::Generator;

/// The length of [`reproduction`]: one byte less than 4 MiB.
pub const REPRODUCTION_BYTES: usize = 4_194_303;

/// How many zeroes [`reproduction`] has.
pub const REPRODUCTION_ZEROES: usize = 2_097_137;

/// `{"method":"xxxxx","params":[0,0,...,0]}`, without a newline.
pub fn reproduction() -> Generator {
    Generator::default()
        .text(&br#"{"method":"xxxxx","params":["#[..])
        .repeat(&b"0,"[..], REPRODUCTION_ZEROES - 1)
        .text(&b"0]}"[..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reproduction_is_exact() {
        let text = reproduction().into_bytes();
        assert_eq!(text.len(), REPRODUCTION_BYTES);
        assert_eq!(text.iter().filter(|byte| **byte == b'0').count(), REPRODUCTION_ZEROES);
        assert!(text.starts_with(br#"{"method":"xxxxx","params":[0,0,"#) && text.ends_with(b",0,0]}"));
    }

    #[test]
    fn the_262145th_value_ends_where_the_design_says() {
        // Root, method, params and 262,141 zeroes are allowed; the zero after them is the value too many.
        let text = reproduction().into_bytes();
        let offset = r#"{"method":"xxxxx","params":["#.len() + 2 * 262_141;
        assert_eq!((offset, text[offset]), (524_310, b'0'));
    }
}
