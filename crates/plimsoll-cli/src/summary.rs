//! What `check` says at the end: how many messages there were, and for each reason where it was first met and what can
//! be done. It holds one entry a reason, however long the input was.

use std::io::{self, Write};

use plimsoll_core::{Reason, Refusal};

use crate::limit_flags::flag;
use crate::row::{Row, Verdict};

/// The sums over all rows.
#[derive(Debug, Default)]
pub(crate) struct Summary {
    ok: u64,
    noise: u64,
    refused: u64,
    bytes: u64,
    // In the order in which the reasons were first met; at most one for each of `Reason::TABLE`.
    reasons: Vec<Met>,
    cut_short: bool,
}

#[derive(Debug)]
struct Met {
    verdict: Verdict,
    times: u64,
    line: u64,
    first: Refusal,
}

impl Summary {
    pub(crate) fn count(&mut self, row: &Row<'_>) {
        match row.verdict {
            Verdict::Ok => self.ok += 1,
            Verdict::Noise => self.noise += 1,
            Verdict::Refused => self.refused += 1,
        }
        self.bytes = self.bytes.saturating_add(row.bytes);
        let Some(refusal) = row.refusal else { return };
        match self.reasons.iter_mut().find(|met| met.first.reason == refusal.reason) {
            Some(met) => met.times += 1,
            None => self.reasons.push(Met { verdict: row.verdict, times: 1, line: row.line, first: refusal }),
        }
    }

    /// The input has more, and it was not read.
    pub(crate) fn cut_short(&mut self) {
        self.cut_short = true;
    }

    /// Whether a row was [`Verdict::Refused`].
    pub(crate) fn has_refused(&self) -> bool {
        self.refused > 0
    }

    fn messages(&self) -> u64 {
        self.ok + self.noise + self.refused
    }

    pub(crate) fn write(&self, out: &mut impl Write) -> io::Result<()> {
        if self.messages() == 0 {
            return writeln!(out, "no messages");
        }
        let plural = if self.messages() == 1 { "" } else { "s" };
        let Self { ok, noise, refused, bytes, .. } = self;
        writeln!(out, "{} message{plural}, {bytes} bytes: {ok} ok, {noise} noise, {refused} refused", self.messages())?;
        for Met { verdict, times, line, first } in &self.reasons {
            let (verdict, reason) = (verdict.word(), first.reason);
            writeln!(out, "{verdict} as {reason}: {times}, the first at line {line}")?;
            writeln!(out, "    {first}")?;
            if let Some(advice) = advice(first) {
                writeln!(out, "    {advice}")?;
            }
        }
        if self.cut_short {
            writeln!(out, "the rest of the input was not read")?;
        }
        Ok(())
    }
}

/// Which flag lets such a message pass.
fn advice(refusal: &Refusal) -> Option<String> {
    let name = match (refusal.reason, refusal.scope) {
        (Reason::Overloaded, Some("connection")) => "cap",
        (reason, _) => reason.limit_name()?,
    };
    Some(match refusal.limit {
        Some(_) => format!("--{} raises this limit, or takes `off`", flag(name)),
        None => format!("--{} off lets it pass", flag(name)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::RowId;

    fn row(line: u64, verdict: Verdict, refusal: Option<Refusal>) -> Row<'static> {
        let id = RowId::Absent;
        Row { line, bytes: 10, verdict, kind: None, id, method: None, values: 0, depth: 0, refusal }
    }

    fn text(summary: &Summary) -> String {
        let mut out = Vec::new();
        summary.write(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_reason_is_told_once_with_its_first_place_its_numbers_and_its_flag() {
        let mut summary = Summary::default();
        summary.count(&row(1, Verdict::Ok, None));
        for line in [4, 5, 9] {
            let refusal = Refusal::over(Reason::JsonValues, 5, 6).at(line);
            summary.count(&row(line, Verdict::Refused, Some(refusal)));
        }
        assert!(summary.has_refused());
        assert_eq!(
            text(&summary),
            "4 messages, 40 bytes: 1 ok, 0 noise, 3 refused\n\
             refused as jsonValues: 3, the first at line 4\n    \
             the message holds too many JSON values (json_values is 5, observed 6) at byte 4\n    \
             --json-values raises this limit, or takes `off`\n"
        );
    }

    #[test]
    fn noise_alone_is_no_refusal_and_nothing_at_all_is_said_to_be_nothing() {
        let mut summary = Summary::default();
        assert_eq!(text(&summary), "no messages\n");
        summary.count(&row(1, Verdict::Noise, Some(Refusal::new(Reason::NotAnObject))));
        assert!(!summary.has_refused());
        assert!(text(&summary).starts_with("1 message, 10 bytes: 0 ok, 1 noise, 0 refused\nnoise as notAnObject: 1"));
    }

    #[test]
    fn the_advice_names_a_flag_that_exists() {
        let no_number = Refusal::new(Reason::DuplicateKey);
        assert_eq!(advice(&no_number).as_deref(), Some("--duplicate-keys off lets it pass"));
        let mut no_room = Refusal::over(Reason::Overloaded, 1, 2);
        assert!(advice(&no_room).unwrap().starts_with("--memory "));
        no_room.scope = Some("connection");
        assert!(advice(&no_room).unwrap().starts_with("--cap "));
        assert_eq!(advice(&Refusal::new(Reason::InvalidJson)), None);
    }
}
