//! The patterns of `exclude` in `vendor/UPSTREAM.toml`.

/// Whether `path` matches `pattern`: both are split at `/`, and `*` stands for any characters inside one part. A pattern
/// that matches a folder is enough, since what lies below a folder is never looked at.
pub fn matches(pattern: &str, path: &str) -> bool {
    let (mut patterns, mut parts) = (pattern.split('/'), path.split('/'));
    loop {
        match (patterns.next(), parts.next()) {
            (None, None) => return true,
            (Some(pattern), Some(part)) if part_matches(pattern.as_bytes(), part.as_bytes()) => {}
            _ => return false,
        }
    }
}

fn part_matches(pattern: &[u8], part: &[u8]) -> bool {
    match (pattern.first(), part.first()) {
        (None, None) => true,
        (Some(b'*'), _) => {
            part_matches(&pattern[1..], part)
                || (!part.is_empty() && part_matches(pattern, &part[1..]))
        }
        (Some(a), Some(b)) if a == b => part_matches(&pattern[1..], &part[1..]),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn star_stays_inside_one_part() {
        assert!(matches(
            "models/ggml-vocab-*",
            "models/ggml-vocab-gpt-2.gguf"
        ));
        assert!(matches("pocs/*/*.png", "pocs/a/b.png"));
        assert!(!matches("pocs/*.png", "pocs/a/b.png"));
        assert!(!matches("docs", "tools/docs"));
        assert!(!matches("docs", "docs2"));
    }

    #[test]
    fn leading_dot_pattern_takes_only_the_root() {
        assert!(matches(".git*", ".gitignore"));
        assert!(!matches(".git*", "tests/.gitignore"));
    }
}
