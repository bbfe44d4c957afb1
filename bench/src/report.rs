//! Tables on standard output and, when asked for, in `BENCHMARKS.md`.

use std::path::Path;
use std::process::{Command, ExitCode};

/// Whether few rounds are enough: the gates hold, the figures are rough.
pub fn is_quick() -> bool {
    is_set("PLIMSOLL_BENCH_QUICK")
}

fn is_set(variable: &str) -> bool {
    std::env::var(variable).is_ok_and(|value| !matches!(value.as_str(), "" | "0"))
}

/// A table and what its gates say.
#[derive(Debug)]
pub struct Report {
    section: &'static str,
    table: String,
    failures: Vec<String>,
}

impl Report {
    /// An empty table with these heads; `section` is its mark in `BENCHMARKS.md`.
    pub fn new(section: &'static str, heads: &[&str]) -> Self {
        let mut report = Self { section, table: String::new(), failures: Vec::new() };
        report.row(heads);
        report.row(&heads.iter().enumerate().map(|(at, _)| if at == 0 { "---" } else { "---:" }).collect::<Vec<_>>());
        report
    }

    /// One more row.
    pub fn row<S: AsRef<str>>(&mut self, cells: &[S]) {
        for cell in cells {
            self.table += "| ";
            self.table += cell.as_ref();
            self.table += " ";
        }
        self.table += "|\n";
    }

    /// A gate: `holds`, or the run fails and says so in the words of `failure`.
    pub fn gate(&mut self, holds: bool, failure: String) {
        if !holds {
            self.failures.push(failure);
        }
    }

    /// Prints the table, writes it into the file when that was asked for, and says whether every gate held.
    pub fn finish(self) -> ExitCode {
        println!("\n{}", self.table);
        if is_set("PLIMSOLL_BENCH_WRITE") {
            if let Err(error) = self.write() {
                eprintln!("{FILE}: {error}");
                return ExitCode::FAILURE;
            }
            eprintln!("{FILE}: the section `{}` is new", self.section);
        }
        for failure in &self.failures {
            eprintln!("GATE FAILED: {failure}");
        }
        if self.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }

    fn write(&self) -> std::io::Result<()> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(FILE);
        let text = std::fs::read_to_string(&path)?;
        let missing = || std::io::Error::other(format!("no marks for the section `{}`", self.section));
        let (begin, end) = (format!("<!-- {} begin -->\n", self.section), format!("<!-- {} end -->", self.section));
        let (head, rest) = text.split_once(&begin).ok_or_else(missing)?;
        let (_, tail) = rest.split_once(&end).ok_or_else(missing)?;
        std::fs::write(&path, format!("{head}{begin}{}\n\n{}{end}{tail}", circumstances(), self.table))
    }
}

const FILE: &str = "BENCHMARKS.md";

/// The machine, the compiler and the day.
fn circumstances() -> String {
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(':'))
        .map_or("unknown processor", |(_, model)| model.trim());
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let quick = if is_quick() { ", few rounds" } else { "" };
    let date = output("date", &["-u", "+%F"]);
    let rustc = output("rustc", &["--version"]);
    format!("{date}, {model}, {cores} cores, {}, {rustc}{quick}.", std::env::consts::OS)
}

fn output(program: &str, arguments: &[&str]) -> String {
    Command::new(program)
        .args(arguments)
        .output()
        .ok()
        .and_then(|output| String::from_utf8(output.stdout).ok())
        .map_or_else(|| format!("{program} unknown"), |text| text.trim().to_string())
}
