//! Writes patches: their names, headers and diffs, and the `series` file.

use crate::header::Header;
use crate::series;
use crate::upstream::Upstream;

/// What a header says that can be read off a commit.
pub(crate) struct Facts<'a> {
    /// YYYY-MM-DD.
    pub(crate) day: &'a str,
    pub(crate) author: &'a str,
    pub(crate) base: &'a Upstream,
    /// The markers in the order in which they stand in the diff.
    pub(crate) hooks: &'a [&'a str],
}

/// The name of the patch for a commit with this first line: the line itself where it is a path, else made from its words.
pub(crate) fn name(subject: &str) -> String {
    if subject.ends_with(".patch") {
        return subject.to_owned();
    }
    let lower = subject.to_lowercase();
    let words = lower
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|word| !word.is_empty());
    format!("{}.patch", words.collect::<Vec<_>>().join("-"))
}

/// A header that is there already, with the facts brought up to date and everything else as it was.
pub(crate) fn updated(header: &str, facts: &Facts<'_>) -> String {
    let mut text = with_field(header, "Last-Update", facts.day);
    let Ok(parsed) = Header::parse(header) else {
        return text;
    };
    let listed: Vec<&str> = parsed.hooks().collect();
    let same =
        listed.len() == facts.hooks.len() && listed.iter().all(|hook| facts.hooks.contains(hook));
    if !same {
        text = with_field(&text, "Hooks", &facts.hooks.join(", "));
    }
    if !parsed.first("Base").contains(&facts.base.llama_cpp_commit) {
        text = with_field(&text, "Base", &facts.base.base());
    }
    text
}

/// The header for a new patch: the message where it is a header, else one made up from its lines.
pub(crate) fn from_message(subject: &str, body: &str, facts: &Facts<'_>) -> String {
    let body = format!("{body}\n");
    if Header::parse(&body).is_ok() {
        return updated(&body, facts);
    }
    let stem = subject
        .trim_end_matches(".patch")
        .rsplit('/')
        .next()
        .unwrap_or(subject)
        .replace('-', " ");
    let mut lines = body.lines().map(str::trim).filter(|line| !line.is_empty());
    let first = if subject.ends_with(".patch") {
        lines.next().map_or(stem, str::to_owned)
    } else {
        subject.to_owned()
    };
    let mut text = format!("Description: {first}\n");
    for line in lines {
        text.push_str(&format!(" {line}\n"));
    }
    let (author, base, hooks) = (facts.author, facts.base.base(), facts.hooks.join(", "));
    text.push_str(&format!(
        "Author: {author}\nOrigin: vendor\nForwarded: not-needed\nBase: {base}\nHooks: {hooks}\n"
    ));
    text.push_str(&format!("Last-Update: {}\n", facts.day));
    text
}

/// `header` with another value for `field`; the field's further lines go.
fn with_field(header: &str, field: &str, value: &str) -> String {
    let (mut text, mut inside) = (String::new(), false);
    for line in header.split_inclusive('\n') {
        if !line.starts_with([' ', '\t']) {
            inside = line.split(':').next() == Some(field);
            if inside {
                text.push_str(&format!("{field}: {value}\n"));
            }
        }
        if !inside {
            text.push_str(line);
        }
    }
    text
}

/// A diff of git's without what changes from one machine or version to the next: `diff` and `index` lines, and the function
/// names after `@@`.
pub(crate) fn plain_diff(diff: &str) -> String {
    let mut text = String::with_capacity(diff.len());
    let mut body = false;
    for line in diff.split_inclusive('\n') {
        if line.starts_with("diff --git ") {
            body = false;
        } else if let Some(ranges) = line
            .strip_prefix("@@ ")
            .and_then(|rest| rest.split(" @@").next())
        {
            body = true;
            text.push_str(&format!("@@ {ranges} @@\n"));
        } else if body || line.starts_with("--- ") || line.starts_with("+++ ") {
            text.push_str(line);
        }
    }
    text
}

/// The `series` file for `names`. Comments stay with the entry below them; the text is the old one where the names are.
pub(crate) fn series(old: &str, names: &[&str]) -> String {
    if series::names(old)
        .map(|(_, name)| name)
        .eq(names.iter().copied())
    {
        return old.to_owned();
    }
    let (mut above, mut blocks, mut comment) = (String::new(), Vec::new(), String::new());
    for line in old.lines() {
        match series::names(line).next() {
            Some((_, name)) => {
                if blocks.is_empty() {
                    above = std::mem::take(&mut comment);
                }
                blocks.push((name, std::mem::take(&mut comment), line));
            }
            None => comment.push_str(&format!("{line}\n")),
        }
    }
    if blocks.is_empty() {
        above = std::mem::take(&mut comment);
    }
    let mut text = above;
    for name in names {
        match blocks.iter().find(|(known, ..)| known == name) {
            Some((_, comment, line)) => text.push_str(&format!("{comment}{line}\n")),
            None => text.push_str(&format!("{name}\n")),
        }
    }
    text + &comment
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_is_made_from_words() {
        assert_eq!(name("core/kv-hook.patch"), "core/kv-hook.patch");
        assert_eq!(name("Ring the bell, twice"), "ring-the-bell-twice.patch");
    }

    #[test]
    fn machine_dependent_lines_go() {
        let diff = "diff --git a/x b/x\nindex 12..34 100644\n--- a/x\n+++ b/x\n@@ -1,2 +1,3 @@ int f()\n a\n+@@ b\n c\n";
        assert_eq!(
            plain_diff(diff),
            "--- a/x\n+++ b/x\n@@ -1,2 +1,3 @@\n a\n+@@ b\n c\n"
        );
    }

    #[test]
    fn series_keeps_its_comments() {
        let old = "# Order.\n\na.patch\n# needs a\nb.patch # yes\n";
        assert_eq!(series(old, &["a.patch", "b.patch"]), old);
        assert_eq!(
            series(old, &["b.patch", "c.patch"]),
            "# Order.\n\n# needs a\nb.patch # yes\nc.patch\n"
        );
        assert_eq!(series("", &["c.patch"]), "c.patch\n");
    }

    #[test]
    fn field_is_replaced_with_its_further_lines() {
        assert_eq!(with_field("A: 1\n 2\nB: 3\n", "A", "9"), "A: 9\nB: 3\n");
    }
}
