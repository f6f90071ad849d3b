//! The header of a patch, in the form of Debian's DEP-3: why it is there and which hooks it places.

/// What is wrong with a header.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum HeaderFault {
    /// The file begins with the diff.
    #[error(
        "there is no header before the diff; begin the file with Description:, Author: .. as patches/README.md shows"
    )]
    None,
    /// A required field is not there.
    #[error("the header lacks {field}; patches/README.md says what goes there")]
    Missing {
        /// The field, with its colon.
        field: &'static str,
    },
    /// A field is there twice.
    #[error("line {line} gives {field}: a second time; merge the two")]
    Repeated {
        /// The field.
        field: String,
        /// Line of the patch, from 1.
        line: usize,
    },
    /// A field that no one reads.
    #[error("line {line} has the unknown field {field}:; known are {}", KNOWN.join(", "))]
    Unknown {
        /// The field.
        field: String,
        /// Line of the patch, from 1.
        line: usize,
    },
    /// A line that is neither `Field: value` nor a continuation.
    #[error(
        "line {line} is neither `Field: value` nor, indented by a blank, more of the field above; mend the line"
    )]
    Line {
        /// Line of the patch, from 1.
        line: usize,
    },
    /// A value that says nothing or not what it should.
    #[error("{field}: {reason}")]
    Value {
        /// The field.
        field: &'static str,
        /// What belongs there.
        reason: &'static str,
    },
}

const REQUIRED: [&str; 7] = [
    "Description",
    "Author",
    "Origin",
    "Forwarded",
    "Base",
    "Hooks",
    "Last-Update",
];
const KNOWN: [&str; 10] = [
    "Description",
    "Author",
    "Origin",
    "Forwarded",
    "Base",
    "Hooks",
    "Last-Update",
    "Bug",
    "Reviewed-by",
    "Applied-Upstream",
];

/// The fields, each with the lines of its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    fields: Vec<(String, Vec<String>)>,
}

impl Header {
    /// Parses and checks the text before a diff.
    ///
    /// # Errors
    /// A [`HeaderFault`].
    pub fn parse(text: &str) -> Result<Self, HeaderFault> {
        if text.trim().is_empty() {
            return Err(HeaderFault::None);
        }
        let mut fields: Vec<(String, Vec<String>)> = Vec::new();
        for (index, raw) in text.lines().enumerate() {
            let line = index + 1;
            if raw.trim().is_empty() {
                continue;
            }
            if let Some(more) = raw.strip_prefix([' ', '\t']) {
                fields
                    .last_mut()
                    .ok_or(HeaderFault::Line { line })?
                    .1
                    .push(more.trim_end().to_owned());
                continue;
            }
            let (field, value) = raw.split_once(':').ok_or(HeaderFault::Line { line })?;
            if !KNOWN.contains(&field) {
                return Err(HeaderFault::Unknown {
                    field: field.to_owned(),
                    line,
                });
            }
            if fields.iter().any(|(known, _)| known == field) {
                return Err(HeaderFault::Repeated {
                    field: field.to_owned(),
                    line,
                });
            }
            fields.push((field.to_owned(), vec![value.trim().to_owned()]));
        }
        let header = Self { fields };
        header.check()?;
        Ok(header)
    }

    fn check(&self) -> Result<(), HeaderFault> {
        for field in REQUIRED {
            if self
                .lines(field)
                .is_none_or(|lines| lines.iter().all(|line| line.is_empty()))
            {
                return Err(HeaderFault::Missing { field });
            }
        }
        let description = self.lines("Description").unwrap_or_default();
        let wrong = |field, reason| Err(HeaderFault::Value { field, reason });
        if description[0].is_empty() || description[0].chars().count() > 80 {
            return wrong(
                "Description",
                "needs a first line of at most 80 characters that says what the patch does",
            );
        }
        if description.len() < 2 {
            return wrong(
                "Description",
                "needs a second line, indented by a blank, that says why kernels/ cannot do it alone",
            );
        }
        let origin = self
            .first("Origin")
            .split(',')
            .next()
            .unwrap_or_default()
            .trim();
        if !["upstream", "backport", "vendor", "other"].contains(&origin) {
            return wrong("Origin", "must be upstream, backport, vendor or other");
        }
        let forwarded = self.first("Forwarded");
        if !["no", "not-needed"].contains(&forwarded) && !forwarded.starts_with("https://") {
            return wrong("Forwarded", "must be no, not-needed or an https:// address");
        }
        if !is_date(self.first("Last-Update")) {
            return wrong("Last-Update", "must be a date as YYYY-MM-DD");
        }
        if !self.hooks().all(crate::hooks::name_is_good) {
            return wrong(
                "Hooks",
                "must be names of lower-case letters, digits and underscores, with commas between them",
            );
        }
        Ok(())
    }

    /// The lines of a field's value.
    #[must_use]
    pub fn lines(&self, field: &str) -> Option<&[String]> {
        self.fields
            .iter()
            .find(|(name, _)| name == field)
            .map(|(_, lines)| lines.as_slice())
    }

    /// The first line of a field's value; empty where there is none.
    #[must_use]
    pub fn first(&self, field: &str) -> &str {
        self.lines(field)
            .and_then(<[_]>::first)
            .map_or("", String::as_str)
    }

    /// The names in `Hooks:`.
    pub fn hooks(&self) -> impl Iterator<Item = &str> {
        let lines = self.lines("Hooks").unwrap_or_default();
        lines
            .iter()
            .flat_map(|line| line.split(','))
            .map(str::trim)
            .filter(|name| !name.is_empty())
    }
}

fn is_date(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let [year, month, day] = parts.as_slice() else {
        return false;
    };
    let number = |part: &str, width| {
        (part.len() == width)
            .then(|| part.parse::<u32>().ok())
            .flatten()
    };
    number(year, 4).is_some()
        && number(month, 2).is_some_and(|month| (1..=12).contains(&month))
        && number(day, 2).is_some_and(|day| (1..=31).contains(&day))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "Description: ring the bell\n The bell is private to that file.\nAuthor: rolling-kv\n\
        Origin: vendor\nForwarded: not-needed\nBase: llama.cpp abc\nHooks: bell, door_2\nLast-Update: 2026-01-31\n";

    fn fault(from: &str, to: &str) -> HeaderFault {
        assert!(GOOD.contains(from));
        Header::parse(&GOOD.replace(from, to)).unwrap_err()
    }

    #[test]
    fn header_is_read() {
        let header = Header::parse(GOOD).unwrap();
        assert_eq!(header.hooks().collect::<Vec<_>>(), ["bell", "door_2"]);
        assert_eq!(header.lines("Description").unwrap().len(), 2);
    }

    #[test]
    fn every_required_field_is_missed() {
        for field in REQUIRED {
            let text: String = GOOD
                .split_inclusive('\n')
                .filter(|line| {
                    !(line.starts_with(field) || field == "Description" && line.starts_with(' '))
                })
                .collect();
            assert_eq!(
                Header::parse(&text).unwrap_err(),
                HeaderFault::Missing { field }
            );
        }
    }

    #[test]
    fn reason_must_be_given() {
        let fault = fault("\n The bell is private to that file.", "");
        assert!(
            fault
                .to_string()
                .contains("why kernels/ cannot do it alone"),
            "{fault}"
        );
    }

    #[test]
    fn typo_in_a_field_is_refused() {
        assert_eq!(
            fault("Author:", "Autor:"),
            HeaderFault::Unknown {
                field: "Autor".into(),
                line: 3
            }
        );
    }

    #[test]
    fn repeated_field_is_refused() {
        assert!(matches!(
            fault("Base:", "Author:"),
            HeaderFault::Repeated { line: 6, .. }
        ));
    }

    #[test]
    fn stray_line_is_refused() {
        assert_eq!(
            fault("Origin: vendor", "Origin vendor"),
            HeaderFault::Line { line: 4 }
        );
    }

    #[test]
    fn values_are_checked() {
        assert!(matches!(
            fault("2026-01-31", "2026-1-31"),
            HeaderFault::Value {
                field: "Last-Update",
                ..
            }
        ));
        assert!(matches!(
            fault("2026-01-31", "2026-13-01"),
            HeaderFault::Value {
                field: "Last-Update",
                ..
            }
        ));
        assert!(matches!(
            fault("vendor", "home"),
            HeaderFault::Value {
                field: "Origin",
                ..
            }
        ));
        assert!(matches!(
            fault("not-needed", "maybe"),
            HeaderFault::Value {
                field: "Forwarded",
                ..
            }
        ));
        assert!(matches!(
            fault("bell, door_2", "Bell!"),
            HeaderFault::Value { field: "Hooks", .. }
        ));
    }
}
