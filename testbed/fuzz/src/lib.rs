//! Fuzz targets that are also quick tests.
//!
//! A target is a unit test whose body is [`fuzz!`]: words of the language that a parser reads, seeds, and a check. As a test, it
//! checks the seeds and some thousands of random texts. `cargo xtask fuzz` builds the same tests for libFuzzer, which looks for texts that
//! reach new code. What it finds becomes a seed.
//!
//! ```
//! # #[allow(dead_code, reason = "it stands for a test")]
//! // #[test]
//! fn numbers() {
//!     testbed_fuzz::fuzz!(&["-", "0"], &["-1", "007"], |text| {
//!         if let Ok(number) = text.parse::<i32>() {
//!             assert_eq!(number.to_string().parse(), Ok(number), "{text:?}");
//!         }
//!     });
//! }
//! ```

#![forbid(unsafe_code)]
#![warn(missing_docs)]

use std::path::PathBuf;
use std::{env, fs};

#[doc(hidden)]
pub use bolero;

mod secret;
mod words;

pub use secret::{SECRET, assert_hidden};
pub use words::{decode, encode};

/// How many random texts a test checks.
pub const ITERATIONS: usize = 4000;
/// The longest input, in bytes. A word takes one.
pub const LONGEST: usize = 96;

/// Checks each of the seeds, and then random texts; under libFuzzer, texts until its time is over. The texts consist of ASCII
/// characters and of the words. A check panics if the text shows a defect.
#[macro_export]
macro_rules! fuzz {
    ($words:expr, $seeds:expr, $check:expr $(,)?) => {{
        let words: &'static [&'static str] = $words;
        let check: fn(&str) = $check;
        $crate::check_seeds(words, $seeds, check);
        $crate::bolero::check!()
            .with_iterations($crate::ITERATIONS)
            .with_max_len($crate::LONGEST)
            .for_each(move |bytes: &[u8]| check(&$crate::decode(words, bytes)));
    }};
}

#[doc(hidden)]
pub fn check_seeds(words: &[&str], seeds: &[&str], check: fn(&str)) {
    // libFuzzer begins with the files of the first folder that it is given.
    let arguments = env::var("BOLERO_LIBFUZZER_ARGS").unwrap_or_default();
    let corpus = arguments.split(' ').next().filter(|folder| !folder.is_empty());
    for (number, seed) in seeds.iter().enumerate() {
        if let Some(corpus) = corpus {
            let file = PathBuf::from(corpus).join(format!("seed-{number}"));
            fs::write(file, encode(words, seed)).expect("the folder of the corpus can be written");
        }
        check(seed);
    }
}
