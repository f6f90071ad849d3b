//! The cards that a CUDA module is built for.

use crate::error::{Error, Result};
use std::fmt;

/// Compute capabilities, such as 86 for 8.6. The highest one is also kept in a form that later cards can compile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Archs(Vec<u32>);

/// A100, the 30 and 40 series of GeForce and their workstation sisters, H100 and H200; by way of the last one, later cards.
const USUAL: [u32; 4] = [80, 86, 89, 90];

/// The lowest for which upstream's attention has tensor cores, and which CUDA 13 still knows.
const LEAST: u32 = 75;

impl Default for Archs {
    fn default() -> Self {
        Self(USUAL.to_vec())
    }
}

impl Archs {
    /// Reads a list such as `86,89,90`; `;` and blanks part its items as well.
    ///
    /// # Errors
    /// [`Error::CudaArchs`] for an empty list, or where an item is no compute capability from 7.5 on.
    pub fn parse(text: &str) -> Result<Self> {
        let items = text
            .split([',', ';', ' '])
            .map(str::trim)
            .filter(|item| !item.is_empty());
        let read = |item: &str| {
            item.parse()
                .ok()
                .filter(|arch| (LEAST..1000).contains(arch))
        };
        let mut archs: Vec<u32> = items.map(read).collect::<Option<_>>().unwrap_or_default();
        archs.sort_unstable();
        archs.dedup();
        if archs.is_empty() {
            return Err(Error::CudaArchs {
                text: text.to_owned(),
            });
        }
        Ok(Self(archs))
    }

    /// The compute capabilities, ascending.
    #[must_use]
    pub fn list(&self) -> &[u32] {
        &self.0
    }

    /// For the name of a folder.
    pub(crate) fn name(&self) -> String {
        self.to_string().replace(',', "-")
    }

    /// For `CMAKE_CUDA_ARCHITECTURES`: machine code for each, and the portable form of the highest.
    pub(crate) fn cmake(&self) -> String {
        let last = self.0.len() - 1;
        let mut items: Vec<String> = self.0[..last]
            .iter()
            .map(|arch| format!("{arch}-real"))
            .collect();
        items.push(self.0[last].to_string());
        items.join(";")
    }
}

impl fmt::Display for Archs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let items: Vec<String> = self.0.iter().map(u32::to_string).collect();
        f.write_str(&items.join(","))
    }
}

impl std::str::FromStr for Archs {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::parse(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_in_any_order_and_only_the_highest_is_portable() {
        let archs = Archs::parse("90; 86,89 86").unwrap();
        assert_eq!(archs.list(), [86, 89, 90]);
        assert_eq!(archs.cmake(), "86-real;89-real;90");
        assert_eq!(archs.to_string(), "86,89,90");
        assert_eq!(Archs::parse("90").unwrap().cmake(), "90");
    }

    #[test]
    fn what_is_no_list_of_cards_is_refused_with_an_example() {
        for text in ["", ",", "sm_86", "86,x", "7", "61", "9000", "-86"] {
            let error = Archs::parse(text).unwrap_err().to_string();
            assert!(error.contains("86,89,90"), "{text}: {error}");
        }
    }
}
