//! A long plain text, the same each time: for checks that need thousands of tokens that a small model can follow.

const WHO: [&str; 10] = [
    "Anna", "Tom", "Maria", "Peter", "Lucy", "Oscar", "Nina", "Paul", "Clara", "Hugo",
];
const DID: [&str; 10] = [
    "walked to",
    "looked at",
    "cleaned",
    "drew a picture of",
    "talked about",
    "sat beside",
    "went past",
    "wrote about",
    "came back from",
    "waited near",
];
const WHAT: [&str; 10] = [
    "the old mill",
    "the garden",
    "the harbour",
    "the stone bridge",
    "the bakery",
    "the small lake",
    "the library",
    "the market",
    "the railway station",
    "the orchard",
];
const WHEN: [&str; 8] = [
    "in the morning",
    "after lunch",
    "before the rain came",
    "on a quiet day",
    "late in the evening",
    "with a friend",
    "for the first time",
    "without any hurry",
];
const THEN: [&str; 10] = [
    "The air was cool.",
    "Nobody was there.",
    "It was a good day.",
    "The birds were singing.",
    "Then it was time to go home.",
    "The sun was shining.",
    "A dog followed along.",
    "The streets were empty.",
    "Somebody waved from a window.",
    "The water was very still.",
];

/// `count` pairs of sentences, about fifteen tokens each.
pub fn pairs(count: usize) -> Vec<String> {
    let mut state: u64 = 1;
    let mut pick = |list: &[&'static str]| {
        // Knuth's linear congruential generator; its upper bits are the random ones.
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        list[(state >> 33) as usize % list.len()]
    };
    (0..count)
        .map(|_| {
            format!(
                "{} {} {} {}. {}",
                pick(&WHO),
                pick(&DID),
                pick(&WHAT),
                pick(&WHEN),
                pick(&THEN)
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_story_is_the_same_each_time_and_does_not_repeat_itself_soon() {
        let story = pairs(260);
        assert_eq!(story, pairs(260));
        let different: std::collections::BTreeSet<_> = story.iter().collect();
        assert!(different.len() > 250, "{}", different.len());
    }
}
