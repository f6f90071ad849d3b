use rolling_kv_tiny::Random;

/// A text of noise for gates that are given none: short sentences of common words, each with a number of its own so
/// that no two are alike. The same seed gives the same text; the text has at least `words` words.
#[must_use]
pub fn noise_text(seed: u64, words: usize) -> String {
    const SUBJECTS: [&str; 12] = [
        "The gardener",
        "A fisherman",
        "The old clock",
        "Her brother",
        "The northern wind",
        "A small engine",
        "The librarian",
        "That river",
        "The second train",
        "His neighbour",
        "A quiet dog",
        "The young baker",
    ];
    const VERBS: [&str; 10] = [
        "counted", "carried", "painted", "found", "forgot", "measured", "followed", "sold",
        "repaired", "watched",
    ];
    const OBJECTS: [&str; 12] = [
        "stones", "letters", "lamps", "apples", "maps", "bottles", "feathers", "wheels", "songs",
        "windows", "baskets", "coins",
    ];
    const PLACES: [&str; 8] = [
        "near the harbour",
        "before noon",
        "in the valley",
        "after the rain",
        "by the mill",
        "on the hill",
        "without a word",
        "at the market",
    ];

    let mut random = Random::new(seed);
    let mut text = String::new();
    let mut written = 0;
    while written < words {
        let mut pick = |n: usize| random.below(n as u64) as usize;
        let (subject, verb, object) = (
            SUBJECTS[pick(SUBJECTS.len())],
            VERBS[pick(VERBS.len())],
            OBJECTS[pick(OBJECTS.len())],
        );
        let (place, number) = (PLACES[pick(PLACES.len())], 10 + pick(9990));
        let sentence = format!("{subject} {verb} {number} {object} {place}. ");
        written += sentence.split_whitespace().count();
        text.push_str(&sentence);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_text() {
        assert_eq!(noise_text(7, 200), noise_text(7, 200));
        assert_ne!(noise_text(7, 200), noise_text(8, 200));
    }

    #[test]
    fn there_are_as_many_words_as_asked_for() {
        assert!(noise_text(1, 1000).split_whitespace().count() >= 1000);
    }
}
