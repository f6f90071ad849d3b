//! Hook markers: the comment `rkv-hook: <name>` on a line that a patch adds.

use crate::error::{Error, Result};
use crate::patch::Patch;

/// What is wrong with the markers of a patch.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum HookFault {
    /// No added line has a marker.
    #[error(
        "no added line ends in a marker; write `// rkv-hook: <name>` on the line that calls into kernels/"
    )]
    None,
    /// A marker without a usable name.
    #[error(
        "line {line} has a marker without a name of lower-case letters, digits and underscores; write `rkv-hook: <name>`"
    )]
    Malformed {
        /// Line of the patch, from 1.
        line: usize,
    },
    /// A marker that the header does not list.
    #[error("line {line} has the marker {name}, which the header does not list; add it to Hooks:")]
    Unlisted {
        /// The hook.
        name: String,
        /// Line of the patch, from 1.
        line: usize,
    },
    /// The header lists a hook that no added line has.
    #[error(
        "the header lists the hook {name}, but no added line has its marker; mark the line or drop the name from Hooks:"
    )]
    Unmarked {
        /// The hook.
        name: String,
    },
    /// A hook that the patched tree holds more than once.
    #[error(
        "the hook {name} is found twice in the patched tree, at {first} and at {second}; give each place its own name"
    )]
    Twice {
        /// The hook.
        name: String,
        /// `file:line` of the first place.
        first: String,
        /// `file:line` of the second.
        second: String,
    },
}

const MARKER: &str = "rkv-hook:";

/// Whether `name` can name a hook.
pub(crate) fn name_is_good(name: &str) -> bool {
    !name.is_empty()
        && name
            .bytes()
            .all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_'))
}

/// The name after the marker in `line`; empty for a marker without a usable name.
pub(crate) fn marker(line: &str) -> Option<&str> {
    let rest = &line[line.find(MARKER)? + MARKER.len()..];
    let name = rest.split_whitespace().next().unwrap_or_default();
    Some(if name_is_good(name) { name } else { "" })
}

/// Checks the markers inside one patch against its `Hooks:`.
///
/// # Errors
/// [`Error::Hook`].
pub fn check_patch(patch: &Patch) -> Result<()> {
    let wrong = |fault| {
        Err(Error::Hook {
            patch: patch.path.clone(),
            fault,
        })
    };
    let mut placed = Vec::new();
    for (line, text) in patch.added_lines() {
        let Some(name) = marker(text) else { continue };
        if name.is_empty() {
            return wrong(HookFault::Malformed { line });
        }
        if !patch.header.hooks().any(|listed| listed == name) {
            return wrong(HookFault::Unlisted {
                name: name.to_owned(),
                line,
            });
        }
        placed.push(name);
    }
    if placed.is_empty() {
        return wrong(HookFault::None);
    }
    match patch.header.hooks().find(|listed| !placed.contains(listed)) {
        Some(name) => wrong(HookFault::Unmarked {
            name: name.to_owned(),
        }),
        None => Ok(()),
    }
}

/// Where markers stand in a tree.
#[derive(Debug, Default)]
pub struct Places(Vec<(String, String)>);

impl Places {
    /// Notes the markers of one file.
    pub fn add(&mut self, relative: &str, content: &[u8]) {
        if memchr::memmem::find(content, MARKER.as_bytes()).is_none() {
            return;
        }
        for (index, line) in String::from_utf8_lossy(content).lines().enumerate() {
            if let Some(name) = marker(line) {
                self.0
                    .push((name.to_owned(), format!("{relative}:{}", index + 1)));
            }
        }
    }

    /// Drops what was noted for one file.
    pub fn forget(&mut self, relative: &str) {
        self.0.retain(|(_, place)| {
            place
                .rsplit_once(':')
                .is_none_or(|(file, _)| file != relative)
        });
    }

    /// Checks that each hook of each patch stands in the tree exactly once.
    ///
    /// # Errors
    /// [`Error::Hook`].
    pub fn check(&self, patches: &[Patch]) -> Result<()> {
        for patch in patches {
            for hook in patch.header.hooks() {
                let mut places = self
                    .0
                    .iter()
                    .filter(|(name, _)| name == hook)
                    .map(|(_, place)| place);
                let fault = match (places.next(), places.next()) {
                    (None, _) => HookFault::Unmarked {
                        name: hook.to_owned(),
                    },
                    (Some(_), None) => continue,
                    (Some(first), Some(second)) => HookFault::Twice {
                        name: hook.to_owned(),
                        first: first.clone(),
                        second: second.clone(),
                    },
                };
                return Err(Error::Hook {
                    patch: patch.path.clone(),
                    fault,
                });
            }
        }
        Ok(())
    }
}
