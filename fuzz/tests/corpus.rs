//! Every committed input of every corpus passes its target's checks.

use std::fs;
use std::path::{Path, PathBuf};

use plimsoll_fuzz::TARGETS;

fn corpora() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus")
}

fn inputs(corpus: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = fs::read_dir(corpus)
        .unwrap_or_else(|error| panic!("{}: {error}", corpus.display()))
        .map(|entry| entry.expect("a folder can be read to its end").path())
        .collect();
    paths.sort();
    paths
}

#[test]
fn every_input_of_every_corpus_passes() {
    for (name, target) in TARGETS {
        let inputs = inputs(&corpora().join(name));
        assert!(!inputs.is_empty(), "the corpus of {name} is empty");
        for path in inputs {
            // The harness is quiet until it disagrees; then this line says about what.
            println!("{}", path.display());
            target(&fs::read(&path).expect("an input can be read"));
        }
    }
}

#[test]
fn every_corpus_belongs_to_a_target_and_every_target_is_built() {
    let manifest = include_str!("../Cargo.toml");
    for corpus in inputs(&corpora()) {
        let name = corpus.file_name().and_then(|name| name.to_str()).expect("a name in ASCII");
        assert!(TARGETS.iter().any(|(target, _)| *target == name), "nothing reads the corpus {name}");
    }
    for (name, _) in TARGETS {
        assert!(manifest.contains(&format!("path = \"fuzz_targets/{name}.rs\"")), "{name} is no target");
    }
    assert_eq!(manifest.matches("[[bin]]").count(), TARGETS.len());
}

#[test]
fn the_corpora_are_small() {
    let inputs: Vec<PathBuf> = TARGETS.iter().flat_map(|(name, _)| inputs(&corpora().join(name))).collect();
    let bytes: u64 = inputs.iter().map(|path| path.metadata().expect("a file").len()).sum();
    assert!(inputs.len() <= 200 && bytes <= 300 * 1024, "{} inputs, {bytes} bytes", inputs.len());
}
