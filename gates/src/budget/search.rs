//! The lossy lever: how many of the most local layers can be local before something is lost.

/// Tries sets of `least` to `most` layers, each the beginning of the next: first the whole, to see whether the trial can say no;
/// then doubling, then halving between the last that passed and the first that did not. Answers how many layers the largest set that
/// passed has, or none.
///
/// # Errors
/// What a trial says.
pub fn largest<E>(
    most: usize,
    mut trial: impl FnMut(usize) -> Result<bool, E>,
) -> Result<Option<usize>, E> {
    if most == 0 {
        return Ok(None);
    }
    if trial(most)? {
        return Ok(Some(most));
    }
    let (mut passed, mut failed) = (0, most);
    let mut next = 1;
    while next < failed {
        if trial(next)? {
            passed = next;
            next *= 2;
        } else {
            failed = next;
        }
    }
    while failed - passed > 1 {
        let middle = usize::midpoint(passed, failed);
        if trial(middle)? {
            passed = middle;
        } else {
            failed = middle;
        }
    }
    Ok((passed > 0).then_some(passed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_set_that_passes_is_found() {
        for most in 1..40 {
            for holds in 0..=most {
                let mut tried = Vec::new();
                let found = largest::<()>(most, |count| {
                    tried.push(count);
                    Ok(count <= holds)
                });
                assert_eq!(found, Ok((holds > 0).then_some(holds)), "{most} {holds}");
                assert_eq!(tried[0], most);
                let trials = tried.len();
                tried.sort_unstable();
                tried.dedup();
                assert_eq!(tried.len(), trials, "nothing is tried twice: {tried:?}");
                assert!(trials <= 12, "{most} {holds}: {trials}");
            }
        }
    }

    #[test]
    fn without_layers_nothing_is_tried() {
        assert_eq!(largest::<()>(0, |_| unreachable!()), Ok(None));
    }
}
