//! The same for each of many things, as many at once as there are cores.

use std::sync::{Mutex, PoisonError};
use std::thread;

use crate::error::Result;
use crate::report::Counts;

/// Runs `check` for each item and sums what they found. The first error stays; the others are run all the same.
pub fn each<T: Sync>(items: &[T], check: impl Fn(&T) -> Result<Counts> + Sync) -> Result<Counts> {
    let next = Mutex::new(items.iter());
    let found = Mutex::new(Ok(Counts::default()));
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(one) = take(&next) {
                    note(&found, check(one));
                }
            });
        }
    });
    found.into_inner().unwrap_or_else(PoisonError::into_inner)
}

fn take<'a, T>(next: &Mutex<std::slice::Iter<'a, T>>) -> Option<&'a T> {
    next.lock().unwrap_or_else(PoisonError::into_inner).next()
}

/// Adds one result to the sum.
fn note(found: &Mutex<Result<Counts>>, result: Result<Counts>) {
    let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
    match (&mut *found, result) {
        (Ok(sum), Ok(counts)) => *sum += counts,
        (Ok(_), Err(error)) => *found = Err(error),
        (Err(_), _) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    #[test]
    fn every_item_is_counted_once() {
        let items: Vec<u64> = (0..100).collect();
        let counts = each(&items, |n| Ok(Counts::new(*n, 1, 0))).unwrap();
        assert_eq!(counts, Counts::new(4950, 100, 0));
    }

    #[test]
    fn an_error_of_one_is_the_error_of_all() {
        let check = |n: &u64| match n {
            7 => Err(Error::wrong("seven", "")),
            _ => Ok(Counts::ONE),
        };
        let items: Vec<u64> = (0..20).collect();
        assert!(
            each(&items, check)
                .unwrap_err()
                .to_string()
                .contains("seven")
        );
    }
}
