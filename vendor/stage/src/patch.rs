//! Patches: what may stand in one, and how it is applied. There is no fuzz and no offset: a patch fits line by line, or
//! it is refused.

use crate::error::{Error, IoContext, Result};
use crate::header::Header;
use crate::hooks;
use crate::parse;
use std::path::{Path, PathBuf};

/// What is wrong with the body of a patch.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum PatchFault {
    /// There is a header but no diff.
    #[error(
        "there is no diff after the header; add one, or delete the file and its line in patches/series"
    )]
    Empty,
    /// A line that does not belong into a plain unified diff.
    #[error(
        "line {line}: {reason}; `cargo xtask patches refresh` writes patches in the right form"
    )]
    Syntax {
        /// Line of the patch, from 1.
        line: usize,
        /// What is wrong.
        reason: String,
    },
    /// A hunk is shorter than its `@@` line says.
    #[error(
        "line {line}: this hunk is cut short ({reason}); restore the file, or write it anew with `cargo xtask patches refresh`"
    )]
    Truncated {
        /// Line of the hunk's `@@`, from 1.
        line: usize,
        /// What is missing.
        reason: String,
    },
    /// A line of upstream's would go.
    #[error(
        "line {line} removes upstream's line {text:?}; a patch only adds lines: leave it and hook in above or below"
    )]
    Removes {
        /// Line of the patch, from 1.
        line: usize,
        /// The line that would go.
        text: String,
    },
    /// A line of upstream's would be replaced.
    #[error(
        "line {line} edits upstream's line {text:?}; a patch only adds lines: add one above or below, and put what it does \
         into kernels/"
    )]
    Edits {
        /// Line of the patch, from 1.
        line: usize,
        /// The line that would be replaced.
        text: String,
    },
    /// The target lies outside the tree.
    #[error(
        "line {line} names {target}, which is outside the tree; name a file of upstream's as a/path and b/path"
    )]
    Outside {
        /// Line of the patch, from 1.
        line: usize,
        /// What was named.
        target: String,
    },
    /// The patch is longer than a hook needs.
    #[error(
        "it adds {added} lines, more than {ADDED_LINES_MAX}; move what they do into kernels/ and keep the call"
    )]
    TooLong {
        /// Lines that it adds.
        added: usize,
    },
    /// Upstream has no such file.
    #[error(
        "line {line} names {target}, which upstream does not have; find out where it went, then follow vendor/UPDATING.md"
    )]
    NoTarget {
        /// Line of the patch, from 1.
        line: usize,
        /// The file.
        target: String,
    },
    /// A context line is not what stands in the tree.
    #[error(
        "line {line}: the patch expects {expected:?} at {target}:{target_line}, where {found} stands{hint}; refit it with \
         `cargo xtask patches open` and `refresh`"
    )]
    Context {
        /// Line of the patch, from 1.
        line: usize,
        /// The file that is patched.
        target: String,
        /// The line of that file, from 1.
        target_line: usize,
        /// What the patch says.
        expected: String,
        /// What the file says.
        found: String,
        /// Where the hunk would fit, if anywhere.
        hint: String,
    },
    /// A hunk with less context than the file offers.
    #[error(
        "line {line}: this hunk has fewer than {CONTEXT_LINES} lines of context {side}; `cargo xtask patches refresh` adds them"
    )]
    ShortContext {
        /// Line of the hunk's `@@`, from 1.
        line: usize,
        /// `before it` or `after it`.
        side: &'static str,
    },
}

/// Lines of context around an addition.
pub const CONTEXT_LINES: usize = 3;
/// Most lines that one patch may add.
pub const ADDED_LINES_MAX: usize = 100;

/// A patch whose form is right: it has a header, adds lines and nothing else, and marks its hooks.
#[derive(Debug, Clone)]
pub struct Patch {
    /// Its name in `series`.
    pub name: String,
    /// Where it lies.
    pub path: PathBuf,
    /// The whole file.
    pub text: String,
    /// The parsed header.
    pub header: Header,
    /// The part of [`Patch::text`] that is the header, with its last line end.
    pub header_text: String,
    /// The files it changes.
    pub files: Vec<FilePatch>,
}

/// What a patch does to one file.
#[derive(Debug, Clone)]
pub struct FilePatch {
    /// Line of the patch's `---`, from 1.
    pub line: usize,
    /// The file, relative to the tree.
    pub target: String,
    /// Its hunks, in order.
    pub hunks: Vec<Hunk>,
}

/// One place where lines are added.
#[derive(Debug, Clone)]
pub struct Hunk {
    /// Line of the patch's `@@`, from 1.
    pub line: usize,
    /// First line of the old file that is context, from 1.
    pub old_start: usize,
    /// The same line in the new file.
    pub new_start: usize,
    /// Context and additions, each with its line end.
    pub lines: Vec<Line>,
}

/// A line of a hunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// Whether the patch adds it; otherwise it is context.
    pub added: bool,
    /// Line of the patch, from 1.
    pub number: usize,
    /// The text with its line end, if it has one.
    pub text: String,
}

impl Patch {
    /// Reads `dir/name` and checks everything that can be checked without the tree.
    ///
    /// # Errors
    /// [`Error::Header`], [`Error::Patch`] or [`Error::Hook`].
    pub fn read(dir: &Path, name: &str) -> Result<Self> {
        let path = dir.join(name);
        let text = std::fs::read_to_string(&path).at("read", &path)?;
        Self::parse(name, path, text)
    }

    /// The same for a text; `path` is for messages.
    ///
    /// # Errors
    /// As [`Patch::read`].
    pub fn parse(name: &str, path: PathBuf, text: String) -> Result<Self> {
        let header_len = parse::header_len(&text);
        let header_text = text[..header_len].to_owned();
        let header = Header::parse(&header_text).map_err(|fault| Error::Header {
            patch: path.clone(),
            fault,
        })?;
        let files = parse::diff(&text).map_err(|fault| Error::Patch {
            patch: path.clone(),
            fault: Box::new(fault),
        })?;
        let patch = Self {
            name: name.to_owned(),
            path,
            text,
            header,
            header_text,
            files,
        };
        let added = patch.added_lines().count();
        if added > ADDED_LINES_MAX {
            return Err(patch.wrong(PatchFault::TooLong { added }));
        }
        hooks::check_patch(&patch)?;
        Ok(patch)
    }

    /// Line of the patch and text of every line that it adds.
    pub fn added_lines(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines = self
            .files
            .iter()
            .flat_map(|file| &file.hunks)
            .flat_map(|hunk| &hunk.lines);
        lines
            .filter(|line| line.added)
            .map(|line| (line.number, line.text.trim_end_matches(['\r', '\n'])))
    }

    /// Changes the files below `root`.
    ///
    /// # Errors
    /// [`Error::Patch`] where it does not fit exactly; files before the failing one are changed by then.
    pub fn apply(&self, root: &Path) -> Result<()> {
        for file in &self.files {
            let target = root.join(&file.target);
            if !target.is_file() {
                return Err(self.wrong(PatchFault::NoTarget {
                    line: file.line,
                    target: file.target.clone(),
                }));
            }
            let old = std::fs::read(&target).at("read", &target)?;
            let new = file.apply(&old).map_err(|fault| self.wrong(fault))?;
            std::fs::write(&target, new).at("write", &target)?;
        }
        Ok(())
    }

    /// Like [`Patch::apply`], but with each hunk at the one place where its context stands, if there is exactly one. Says whether
    /// that was so; nothing is changed otherwise. A build never does this: it serves to refit a patch to a newer upstream.
    ///
    /// # Errors
    /// A file that cannot be read or written.
    pub fn apply_moved(&self, root: &Path) -> Result<bool> {
        let mut changed = Vec::new();
        for file in &self.files {
            let target = root.join(&file.target);
            if !target.is_file() {
                return Ok(false);
            }
            let old = std::fs::read(&target).at("read", &target)?;
            match file.moved(&old).and_then(|moved| moved.apply(&old).ok()) {
                Some(new) => changed.push((target, new)),
                None => return Ok(false),
            }
        }
        for (target, new) in changed {
            std::fs::write(&target, new).at("write", &target)?;
        }
        Ok(true)
    }

    fn wrong(&self, fault: PatchFault) -> Error {
        Error::Patch {
            patch: self.path.clone(),
            fault: Box::new(fault),
        }
    }
}

impl FilePatch {
    /// The content of the file after the patch.
    ///
    /// # Errors
    /// A [`PatchFault`] where a line is not what the patch says.
    pub fn apply(&self, old: &[u8]) -> std::result::Result<Vec<u8>, PatchFault> {
        let lines: Vec<&[u8]> = old.split_inclusive(|b| *b == b'\n').collect();
        let (mut new, mut new_lines, mut taken) = (Vec::with_capacity(old.len() + 1024), 0, 0);
        for hunk in &self.hunks {
            let start = hunk.old_start - 1;
            if start < taken {
                let reason = "this hunk overlaps the one before it or stands before it".to_owned();
                return Err(PatchFault::Syntax {
                    line: hunk.line,
                    reason,
                });
            }
            hunk.check_context(&lines, &self.target)?;
            for line in &lines[taken..start] {
                new.extend_from_slice(line);
            }
            new_lines += start - taken;
            if hunk.new_start != new_lines + 1 {
                let reason = format!(
                    "+{} should be +{}, counting what was added above",
                    hunk.new_start,
                    new_lines + 1
                );
                return Err(PatchFault::Syntax {
                    line: hunk.line,
                    reason,
                });
            }
            for line in &hunk.lines {
                new.extend_from_slice(line.text.as_bytes());
            }
            new_lines += hunk.lines.len();
            taken = start + hunk.context().count();
        }
        for line in &lines[taken..] {
            new.extend_from_slice(line);
        }
        Ok(new)
    }
}

impl FilePatch {
    /// The same patch with each hunk at the only place, after the hunk before it, where its context stands.
    fn moved(&self, old: &[u8]) -> Option<Self> {
        let lines: Vec<&[u8]> = old.split_inclusive(|b| *b == b'\n').collect();
        let (mut moved, mut taken, mut added) = (self.clone(), 0, 0);
        for hunk in &mut moved.hunks {
            let mut places =
                (taken..lines.len()).filter(|start| hunk.first_misfit(&lines, *start).is_none());
            let (start, None) = (places.next()?, places.next()) else {
                return None;
            };
            hunk.old_start = start + 1;
            hunk.new_start = start + 1 + added;
            taken = start + hunk.context().count();
            added += hunk.lines.iter().filter(|line| line.added).count();
        }
        Some(moved)
    }
}

impl Hunk {
    fn context(&self) -> impl Iterator<Item = &Line> {
        self.lines.iter().filter(|line| !line.added)
    }

    /// The index in the file of the first context line that does not fit, if one does not.
    fn first_misfit(&self, lines: &[&[u8]], start: usize) -> Option<usize> {
        let fits = |(at, line): (usize, &Line)| {
            lines
                .get(start + at)
                .is_some_and(|old| *old == line.text.as_bytes())
        };
        self.context().enumerate().position(|pair| !fits(pair))
    }

    fn check_context(&self, lines: &[&[u8]], target: &str) -> std::result::Result<(), PatchFault> {
        let start = self.old_start - 1;
        if let Some(at) = self.first_misfit(lines, start) {
            let line = self.context().nth(at).unwrap_or(&self.lines[0]);
            let found = lines
                .get(start + at)
                .map(|old| format!("{:?}", String::from_utf8_lossy(old).trim_end()));
            let fits_at = (0..lines.len()).find(|other| self.first_misfit(lines, *other).is_none());
            return Err(PatchFault::Context {
                line: line.number,
                target: target.to_owned(),
                target_line: start + at + 1,
                expected: line.text.trim_end().to_owned(),
                found: found.unwrap_or_else(|| "the end of the file".to_owned()),
                hint: fits_at.map_or(String::new(), |other| {
                    format!(
                        " (it would fit at line {}, an offset of {:+})",
                        other + 1,
                        other as i64 - start as i64
                    )
                }),
            });
        }
        let before = self.lines.iter().take_while(|line| !line.added).count();
        let after = self
            .lines
            .iter()
            .rev()
            .take_while(|line| !line.added)
            .count();
        let end = start + self.context().count();
        let short = |side| {
            Err(PatchFault::ShortContext {
                line: self.line,
                side,
            })
        };
        if before < CONTEXT_LINES.min(start + before) {
            return short("before it");
        }
        if after < CONTEXT_LINES.min(lines.len() - end + after) {
            return short("after it");
        }
        Ok(())
    }
}
