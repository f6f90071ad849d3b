//! Numbers of the command line, checked where they come in; each complaint says what is allowed.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

use super::args::WindowArg;

/// Largest count that llama.cpp's 32-bit signed fields hold.
const COUNT_MAX: u32 = i32::MAX as u32;

/// More layers than any model has; a list is not to name a billion of them.
const LAYERS_MAX: u32 = 4096;

/// How many tokens to generate; 0 is allowed.
pub fn token_count(text: &str) -> Result<u32, String> {
    within(text, 0..=COUNT_MAX)
}

/// A number of tokens of context; 0 is not one.
pub fn context(text: &str) -> Result<u32, String> {
    within(text, 1..=COUNT_MAX)
        .map_err(|error| format!("{error}; without --ctx a fitting size is chosen"))
}

/// A number of tokens that cannot be 0.
pub fn tokens(text: &str) -> Result<u32, String> {
    within(text, 1..=COUNT_MAX)
}

/// A number of CPU threads, up to llama.cpp's limit.
pub fn threads(text: &str) -> Result<u32, String> {
    within(text, 1..=512)
}

/// A number of layers.
pub fn layers(text: &str) -> Result<u32, String> {
    within(text, 0..=COUNT_MAX)
}

/// A number of cells for the window, or `auto`.
pub fn window(text: &str) -> Result<WindowArg, String> {
    if text == "auto" {
        return Ok(WindowArg::Auto);
    }
    within(text, 0..=COUNT_MAX)
        .map(WindowArg::Cells)
        .map_err(|error| format!("{error}, nor auto"))
}

/// An amount of memory in MiB.
pub fn mebibytes(text: &str) -> Result<u64, String> {
    within(text, 1..=1 << 40)
}

/// A layer, or the first and the last of some: `11` or `0-4`.
pub fn layer_range(text: &str) -> Result<RangeInclusive<u32>, String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (layers(first), layers(last)) {
        (Ok(first), Ok(last)) if first <= last && last < LAYERS_MAX => Ok(first..=last),
        _ => Err(format!(
            "{text:?} is not a layer, nor a range such as 0-4 with the smaller number first"
        )),
    }
}

/// A number of cells of a tile.
pub fn tile(text: &str) -> Result<u32, String> {
    const STEP: u32 = 32;
    const MAX: u32 = 8192;
    match within(text, STEP..=MAX) {
        Ok(cells) if cells.is_multiple_of(STEP) => Ok(cells),
        _ => Err(format!(
            "{text:?} is not a multiple of {STEP} from {STEP} to {MAX}"
        )),
    }
}

/// A number of tokens of which one half fills whole tiles; each is a sequence of its own.
pub fn moved_tokens(text: &str) -> Result<u32, String> {
    const STEP: u32 = 64;
    const MAX: u32 = 256;
    match within(text, STEP..=MAX) {
        Ok(tokens) if tokens.is_multiple_of(STEP) => Ok(tokens),
        _ => Err(format!(
            "{text:?} is not a multiple of {STEP} from {STEP} to {MAX}"
        )),
    }
}

/// A share of something, in percent.
pub fn percent(text: &str) -> Result<f64, String> {
    match text.trim_end_matches('%').parse::<f64>() {
        Ok(percent) if (0.0..=100.0).contains(&percent) => Ok(percent),
        _ => Err(format!("{text:?} is not a percentage from 0 to 100")),
    }
}

/// A number of slots of the staging ring.
pub fn slots(text: &str) -> Result<u32, String> {
    within(text, 1..=4096)
}

/// How many tokens stay candidates; 0 means all.
pub fn top_k(text: &str) -> Result<u32, String> {
    within(text, 0..=COUNT_MAX)
}

/// A seed; the largest 32-bit number is none.
pub fn seed(text: &str) -> Result<u32, String> {
    // llama.cpp reads the largest number as "choose one".
    within(text, 0..=u32::MAX - 1)
}

/// A temperature.
pub fn temperature(text: &str) -> Result<f32, String> {
    within(text, 0.0..=f32::MAX)
}

/// A probability from 0 to 1.
pub fn probability(text: &str) -> Result<f32, String> {
    within(text, 0.0..=1.0)
}

/// A share above 0.
pub fn share(text: &str) -> Result<f32, String> {
    within(text, f32::MIN_POSITIVE..=1.0)
        .map_err(|_| format!("{text:?} is not a number above 0 and up to 1"))
}

/// A divisor above 0.
pub fn penalty(text: &str) -> Result<f32, String> {
    within(text, f32::MIN_POSITIVE..=f32::MAX)
        .map_err(|_| format!("{text:?} is not a number above 0"))
}

/// Parses a number and checks its range. NaN is in no range.
fn within<T: FromStr + PartialOrd + Display>(
    text: &str,
    range: RangeInclusive<T>,
) -> Result<T, String> {
    let wanted = || {
        // The largest f32 is no number that a reader wants to see.
        let (from, to) = (range.start().to_string(), range.end().to_string());
        if to.len() > 12 {
            format!("a number from {from} up")
        } else {
            format!("a number from {from} to {to}")
        }
    };
    match text.parse::<T>() {
        Ok(value) if range.contains(&value) => Ok(value),
        _ => Err(format!("{text:?} is not {}", wanted())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_number_that_cannot_be_computed_with_passes() {
        for text in ["nan", "NaN", "-1", "inf", "-inf", "", "warm"] {
            assert!(temperature(text).is_err(), "{text}");
            assert!(probability(text).is_err(), "{text}");
            assert!(share(text).is_err(), "{text}");
            assert!(penalty(text).is_err(), "{text}");
        }
        assert!(probability("1.01").is_err());
        assert!(share("0").is_err());
        assert!(penalty("0").is_err());
        assert!(context("0").is_err());
        assert!(threads("0").is_err());
        assert!(token_count("2147483648").is_err());
        assert!(seed("4294967295").is_err());
    }

    #[test]
    fn borders_pass() {
        assert_eq!(temperature("0"), Ok(0.0));
        assert_eq!(probability("1"), Ok(1.0));
        assert_eq!(token_count("0"), Ok(0));
        assert_eq!(seed("4294967294"), Ok(u32::MAX - 1));
    }

    #[test]
    fn a_window_is_a_number_or_auto() {
        assert_eq!(window("auto"), Ok(WindowArg::Auto));
        assert_eq!(window("0"), Ok(WindowArg::Cells(0)));
        for text in ["", "-1", "half", "2147483648", "256,512"] {
            assert!(window(text).unwrap_err().contains("auto"), "{text}");
        }
    }

    #[test]
    fn a_list_of_layers_is_made_of_layers_and_ranges() {
        assert_eq!(layer_range("11"), Ok(11..=11));
        assert_eq!(layer_range("0-4"), Ok(0..=4));
        for text in ["", "-", "4-0", "1-", "-1", "a", "0-4096"] {
            assert!(layer_range(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_tile_is_a_multiple_of_its_step() {
        assert_eq!(tile("32"), Ok(32));
        assert_eq!(tile("8192"), Ok(8192));
        for text in ["0", "31", "33", "8224", "x"] {
            assert!(tile(text).unwrap_err().contains("multiple of 32"), "{text}");
        }
    }

    #[test]
    fn a_complaint_says_what_is_allowed() {
        assert_eq!(
            temperature("nan").unwrap_err(),
            "\"nan\" is not a number from 0 up"
        );
        assert_eq!(
            probability("2").unwrap_err(),
            "\"2\" is not a number from 0 to 1"
        );
    }
}
