//! Words, numbers and identifiers to make texts of.

/// The same numbers everywhere, as words and other things.
pub struct Random(rolling_kv_tiny::Random);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(rolling_kv_tiny::Random::new(seed))
    }

    pub fn below(&mut self, n: usize) -> usize {
        self.0.below(n as u64) as usize
    }

    /// In another order (Fisher and Yates).
    pub fn shuffle<T>(&mut self, list: &mut [T]) {
        for last in (1..list.len()).rev() {
            list.swap(last, self.below(last + 1));
        }
    }

    /// Seven digits.
    pub fn number(&mut self) -> String {
        (1_000_000 + self.below(9_000_000)).to_string()
    }

    /// 32 hexadecimal digits in the groups of a UUID.
    pub fn identifier(&mut self) -> String {
        let digits = format!("{:016x}{:016x}", self.0.next_u64(), self.0.next_u64());
        format!(
            "{}-{}-{}-{}-{}",
            &digits[..8],
            &digits[8..12],
            &digits[12..16],
            &digits[16..20],
            &digits[20..]
        )
    }

    /// Two words with a dash between them.
    pub fn key(&mut self) -> String {
        format!(
            "{}-{}",
            LEFT[self.below(LEFT.len())],
            RIGHT[self.below(RIGHT.len())]
        )
    }
}

/// As many different ones as asked for.
pub fn different(count: usize, mut make: impl FnMut() -> String) -> Vec<String> {
    let mut all = Vec::with_capacity(count);
    let mut known = std::collections::HashSet::new();
    while all.len() < count {
        let one = make();
        if known.insert(one.clone()) {
            all.push(one);
        }
    }
    all
}

/// How a word is, in front of a dash.
pub const LEFT: [&str; 64] = [
    "amber", "ancient", "bitter", "bold", "brave", "bright", "broken", "calm", "careful", "clever",
    "cloudy", "cold", "crimson", "curious", "dark", "distant", "eager", "early", "empty", "faint",
    "famous", "fierce", "foggy", "frozen", "gentle", "giant", "golden", "grand", "happy", "heavy",
    "hidden", "hollow", "honest", "humble", "icy", "lively", "lonely", "loud", "lucky", "mellow",
    "mild", "modern", "narrow", "noble", "odd", "patient", "plain", "proud", "quick", "quiet",
    "rapid", "rough", "rusty", "salty", "sharp", "shiny", "silent", "simple", "sleepy", "smooth",
    "steady", "sturdy", "tender", "wild",
];

/// What a word names, behind a dash.
pub const RIGHT: [&str; 64] = [
    "anchor", "apple", "arrow", "badge", "barrel", "basket", "beacon", "bell", "bottle", "branch",
    "bridge", "bucket", "button", "cabin", "candle", "canyon", "castle", "chimney", "circle",
    "cliff", "compass", "copper", "cottage", "cradle", "desert", "drum", "engine", "falcon",
    "feather", "fiddle", "forest", "fountain", "garden", "glacier", "hammer", "harbor", "island",
    "jacket", "kettle", "ladder", "lantern", "meadow", "mirror", "monument", "mountain", "needle",
    "orchard", "paddle", "palace", "pebble", "pillow", "planet", "pocket", "rabbit", "ribbon",
    "river", "saddle", "shadow", "shelter", "signal", "spider", "tunnel", "valley", "window",
];

/// Plain words to count, none a part of another.
pub const PLAIN: [&str; 96] = [
    "actor", "album", "angle", "apron", "arena", "armor", "attic", "bacon", "badger", "banjo",
    "bench", "berry", "blanket", "blossom", "bonus", "cable", "cactus", "camera", "canal",
    "carpet", "cedar", "cello", "cherry", "clover", "coffee", "collar", "coral", "cotton",
    "crater", "curtain", "daisy", "dancer", "dinner", "doctor", "dolphin", "donkey", "dragon",
    "eagle", "easel", "elbow", "ember", "fabric", "farmer", "fender", "ferry", "flute", "forum",
    "fossil", "galaxy", "garlic", "ginger", "goblet", "guitar", "hamlet", "helmet", "hermit",
    "honey", "hotel", "insect", "ivory", "jelly", "jungle", "kayak", "kitchen", "lemon", "lizard",
    "locket", "magnet", "maple", "marble", "medal", "melon", "mitten", "motel", "napkin", "nickel",
    "novel", "oasis", "olive", "onion", "orbit", "otter", "oyster", "panda", "parrot", "pencil",
    "pepper", "piano", "pigeon", "quilt", "radio", "raven", "rocket", "salmon", "teapot", "violin",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_plain_word_is_a_part_of_another() {
        for (at, word) in PLAIN.iter().enumerate() {
            for (other_at, other) in PLAIN.iter().enumerate() {
                assert!(at == other_at || !other.contains(word), "{word} in {other}");
            }
        }
    }

    #[test]
    fn numbers_and_identifiers_have_their_forms() {
        let mut random = Random::new(1);
        assert_eq!(random.number().len(), 7);
        let groups: Vec<usize> = random.identifier().split('-').map(str::len).collect();
        assert_eq!(groups, [8, 4, 4, 4, 12]);
        assert_eq!(different(50, || random.key()).len(), 50);
    }
}
