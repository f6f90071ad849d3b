//! Limits on a grammar's text. llama.cpp's parser and its checks recurse, so a deeply nested grammar would exhaust the
//! stack.

/// Deepest nesting of parentheses.
const MAX_DEPTH: usize = 128;

/// Most rules, counting the one that each group in parentheses becomes.
const MAX_RULES: usize = 4096;

/// Longest text in bytes.
const MAX_BYTES: usize = 1 << 20;

/// Why the text is refused before it is parsed.
pub(crate) fn check_limits(text: &str) -> Result<(), String> {
    if text.trim().is_empty() {
        return Err("it is empty".into());
    }
    if text.len() > MAX_BYTES {
        return Err(format!(
            "it has {} bytes, more than {MAX_BYTES}",
            text.len()
        ));
    }
    let shape = shape(text);
    if shape.depth > MAX_DEPTH {
        return Err(format!(
            "its parentheses nest {} deep, more than {MAX_DEPTH}",
            shape.depth
        ));
    }
    if shape.rules > MAX_RULES {
        return Err(format!(
            "it has {} rules and groups, more than {MAX_RULES}",
            shape.rules
        ));
    }
    Ok(())
}

struct Shape {
    depth: usize,
    rules: usize,
}

fn shape(text: &str) -> Shape {
    let mut shape = Shape {
        depth: 0,
        rules: text.matches("::=").count(),
    };
    let (mut open, mut until) = (0usize, None);
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        match (until, byte) {
            // An escaped character never ends what it stands in.
            (Some(b'"' | b']'), b'\\') => {
                bytes.next();
            }
            (Some(end), byte) if byte == end => until = None,
            (Some(_), _) => {}
            (None, b'"') => until = Some(b'"'),
            (None, b'[') => until = Some(b']'),
            (None, b'#') => until = Some(b'\n'),
            (None, b'(') => {
                open += 1;
                shape.rules += 1;
                shape.depth = shape.depth.max(open);
            }
            (None, b')') => open = open.saturating_sub(1),
            (None, _) => {}
        }
    }
    shape
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parentheses_in_texts_classes_and_comments_do_not_nest() {
        let text = "root ::= \"((((\\\"((\" [(((\\]((] ( \"a\" ( \"b\" ) ) # ((((((\n";
        let shape = shape(text);
        assert_eq!((shape.depth, shape.rules), (2, 3));
    }

    #[test]
    fn too_deep_and_too_many_are_refused() {
        assert!(check_limits(&format!("root ::= {}", "(".repeat(100_000))).is_err());
        assert!(check_limits(&"a ::= b\n".repeat(10_000)).is_err());
        assert!(check_limits("  \n").is_err());
        assert!(check_limits("root ::= \"yes\"").is_ok());
    }
}
