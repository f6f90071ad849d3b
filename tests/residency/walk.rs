//! Random sequences of edits on a spilled context and its resident twin, compared after every step.

use rolling_kv::{
    Batch, Context, ContextParams, KvType, Model, Output, RollingKv, StateBlob, Token,
};

use crate::common::{Random, backend, fewer_if_slow, tiny};
use crate::twins::{bits, resident, spilled};

const SEQUENCES: i32 = 3;
const N_CTX: u32 = 768;
/// Steps of one walk; then a new one starts with the next seed, another shape and another budget.
const STEPS_OF_WALK: u64 = 250;

/// One edit, drawn before it is applied to both twins.
#[derive(Debug, Clone)]
enum Edit {
    Append {
        seq: i32,
        tokens: Vec<Token>,
    },
    AppendMany {
        tokens: Vec<(i32, Token)>,
    },
    Remove {
        seq: i32,
        from: i32,
        to: i32,
    },
    Copy {
        src: i32,
        dst: i32,
    },
    Move {
        seq: i32,
        from: i32,
        to: i32,
        delta: i32,
    },
    Divide {
        seq: i32,
        from: i32,
        to: i32,
        divisor: i32,
    },
    SelfExtend {
        seq: i32,
        from: i32,
        group: i32,
    },
    ContextShift {
        seq: i32,
    },
    Keep {
        seq: i32,
    },
    Clear,
    Save {
        seq: i32,
    },
    Restore {
        seq: i32,
    },
    SaveAll,
    RestoreAll,
}

impl Edit {
    fn draw(random: &mut Random) -> Self {
        let seq = random.below(SEQUENCES as u64) as i32;
        let tokens = |random: &mut Random, count: u64| {
            (0..count)
                .map(|_| Token(3 + random.below(250) as i32))
                .collect()
        };
        match random.below(115) {
            0..=39 => Self::Append {
                seq,
                tokens: tokens(random, 1),
            },
            40..=54 => {
                let count = 2 + random.below(30);
                Self::Append {
                    seq,
                    tokens: tokens(random, count),
                }
            }
            55..=59 => {
                let count = 40 + random.below(120);
                Self::Append {
                    seq,
                    tokens: tokens(random, count),
                }
            }
            60..=67 => Self::AppendMany {
                tokens: (0..SEQUENCES)
                    .map(|seq| (seq, Token(3 + random.below(250) as i32)))
                    .collect(),
            },
            68..=77 => {
                let from = random.below(250) as i32;
                Self::Remove {
                    seq,
                    from,
                    to: from + random.below(120) as i32,
                }
            }
            78..=82 => Self::Remove {
                seq,
                from: 0,
                to: i32::MAX,
            },
            83..=86 => Self::Copy {
                src: seq,
                dst: (seq + 1) % SEQUENCES,
            },
            87 => Self::Keep { seq },
            88 => Self::Clear,
            89..=92 => Self::Save { seq },
            93..=96 => Self::Restore { seq },
            97 => Self::SaveAll,
            98..=99 => Self::RestoreAll,
            100..=106 => {
                let from = random.below(250) as i32;
                Self::Move {
                    seq,
                    from,
                    to: from + random.below(200) as i32,
                    delta: random.below(121) as i32 - 60,
                }
            }
            107..=108 => {
                let from = random.below(150) as i32;
                Self::Divide {
                    seq,
                    from,
                    to: from + random.below(100) as i32,
                    divisor: 2 + random.below(3) as i32,
                }
            }
            109..=110 => Self::SelfExtend {
                seq,
                from: random.below(100) as i32,
                group: 2 + random.below(3) as i32,
            },
            _ => Self::ContextShift { seq },
        }
    }
}

/// One of the twins, with what it saved.
struct Walker<'model> {
    context: Context<'model>,
    sequence: Option<StateBlob>,
    whole: Option<StateBlob>,
}

impl<'model> Walker<'model> {
    fn new(context: Context<'model>) -> Self {
        Self {
            context,
            sequence: None,
            whole: None,
        }
    }

    /// Applies an edit; answers what it said, and the logits if it computed some.
    fn apply(&mut self, edit: &Edit) -> (String, Vec<f32>) {
        let mut logits = Vec::new();
        let said = match edit {
            Edit::Append { seq, tokens } => {
                let done = self.context.append(*seq, tokens);
                if done.is_ok() {
                    logits = self
                        .context
                        .last_logits()
                        .expect("the last token is an output")
                        .to_vec();
                }
                format!("{done:?}")
            }
            Edit::AppendMany { tokens } => self.append_many(tokens, &mut logits),
            Edit::Remove { seq, from, to } => {
                format!("{:?}", self.context.memory().remove(*seq, *from..*to))
            }
            Edit::Copy { src, dst } => {
                let mut memory = self.context.memory();
                format!(
                    "{:?} {:?}",
                    memory.remove(*dst, ..),
                    memory.copy(*src, *dst, ..)
                )
            }
            Edit::Move {
                seq,
                from,
                to,
                delta,
            } => format!(
                "{:?}",
                self.context.memory().shift(*seq, *from..*to, *delta)
            ),
            Edit::Divide {
                seq,
                from,
                to,
                divisor,
            } => format!(
                "{:?}",
                self.context.memory().divide(*seq, *from..*to, *divisor)
            ),
            Edit::SelfExtend { seq, from, group } => self.self_extend(*seq, *from, *group),
            Edit::ContextShift { seq } => self.context_shift(*seq),
            Edit::Keep { seq } => format!("{:?}", self.context.memory().keep(*seq)),
            Edit::Clear => format!("{:?}", self.context.memory().clear()),
            Edit::Save { seq } => {
                self.sequence = self.context.save_sequence(*seq).ok();
                String::new()
            }
            Edit::Restore { seq } => match self.sequence.take() {
                Some(state) => format!("{:?}", self.context.restore_sequence(&state, *seq)),
                None => String::new(),
            },
            Edit::SaveAll => {
                self.whole = self.context.save_state().ok();
                String::new()
            }
            Edit::RestoreAll => match self.whole.take() {
                Some(state) => format!("{:?}", self.context.restore_state(&state)),
                None => String::new(),
            },
        };
        (said, logits)
    }

    /// A group of `group` neighbours gets one position, and what follows moves up.
    fn self_extend(&mut self, seq: i32, from: i32, group: i32) -> String {
        let width = 16 * group;
        let mut memory = self.context.memory();
        let divided = memory.divide(seq, from..from + width, group);
        let delta = (from + width) / group - (from + width);
        format!("{divided:?} {:?}", memory.shift(seq, from + width.., delta))
    }

    /// The first tokens stay, half of the others go, and the rest moves up.
    fn context_shift(&mut self, seq: i32) -> String {
        let mut memory = self.context.memory();
        let end = match memory.positions(seq) {
            Ok(Some(held)) => *held.end() + 1,
            other => return format!("{other:?}"),
        };
        let keep = 4.min(end);
        let gone = (end - keep) / 2;
        let removed = memory.remove(seq, keep..keep + gone);
        format!("{removed:?} {:?}", memory.shift(seq, keep + gone.., -gone))
    }

    /// One token for each sequence, in one batch.
    fn append_many(&mut self, tokens: &[(i32, Token)], logits: &mut Vec<f32>) -> String {
        let mut batch = Batch::new();
        for (seq, token) in tokens {
            let next = self
                .context
                .memory()
                .positions(*seq)
                .expect("the sequence exists")
                .map_or(0, |held| held.end() + 1);
            batch.push(*token, next, &[*seq], Output::Yes);
        }
        let done = self.context.decode(&batch);
        if done.is_ok() {
            for index in 0..tokens.len() {
                logits.extend_from_slice(
                    self.context
                        .logits(index)
                        .expect("every token is an output")
                        .values(),
                );
            }
        }
        format!("{done:?}")
    }

    /// The bytes of what was saved last.
    fn saved(&self) -> [Option<&[u8]>; 2] {
        [&self.sequence, &self.whole].map(|state| state.as_ref().map(StateBlob::as_bytes))
    }

    fn positions(&mut self) -> String {
        (0..SEQUENCES)
            .map(|seq| format!("{:?}", self.context.memory().positions(seq)))
            .collect()
    }
}

fn budget(random: &mut Random) -> RollingKv {
    let cells = |random: &mut Random| (random.below(9) * 32) as u32;
    let common = cells(random);
    let mut budget = RollingKv::window_cells(common);
    if random.below(2) == 0 {
        budget = budget.layer_window(0, cells(random));
    }
    if random.below(3) == 0 {
        budget = budget.resident_layers(1..=1);
    }
    budget
}

/// Runs one walk; a failure names the seed and the step, and the same seed replays it.
///
/// Answers how many tiles were read from tails, and how many of their cells moved.
fn walk(model: &Model, seed: u64, steps: u64) -> [u64; 2] {
    let mut random = Random::new(seed);
    let mut params = ContextParams::new(N_CTX)
        .n_seq_max(SEQUENCES as u32)
        .n_ubatch(48)
        .threads(1);
    if random.below(2) == 0 {
        params = params.kv_unified();
    }
    if random.below(3) == 0 {
        params = params.cache_types(KvType::Q8_0, KvType::Q8_0);
    }
    let budget = budget(&mut random);
    let mut left = Walker::new(resident(model, &params));
    let mut right = Walker::new(spilled(model, &params, budget.clone()));

    for step in 0..steps {
        let edit = Edit::draw(&mut random);
        let (said, logits) = left.apply(&edit);
        let (also_said, also_logits) = right.apply(&edit);
        let place = || {
            format!(
                "seed {seed}, step {step}, {edit:?}, {budget:?}: replay with ROLLING_KV_WALK_SEED={seed}"
            )
        };
        assert!(
            said == also_said,
            "{}: {said:.200} against {also_said:.200}",
            place()
        );
        assert!(
            bits(&logits) == bits(&also_logits),
            "the logits differ at {}",
            place()
        );
        assert!(
            left.saved() == right.saved(),
            "the states differ at {}",
            place()
        );
        assert_eq!(left.positions(), right.positions(), "{}", place());
        // Each restores what the other saved: a state goes from one window to another.
        std::mem::swap(&mut left.sequence, &mut right.sequence);
        std::mem::swap(&mut left.whole, &mut right.whole);
    }
    let totals = right.context.residency().totals();
    [totals.tiles_tail, totals.moved_host + totals.moved_device]
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| {
        value
            .parse()
            .unwrap_or_else(|_| panic!("{name}={value} is not a number"))
    })
}

#[test]
fn random_edits_leave_the_twins_equal() {
    let backend = backend();
    let model = tiny::model(&backend);
    if let Some(seed) = number("ROLLING_KV_WALK_SEED") {
        walk(&model, seed, STEPS_OF_WALK);
        return;
    }
    let steps = number("ROLLING_KV_WALK_STEPS").unwrap_or(fewer_if_slow(10_000) as u64);
    let first = number("ROLLING_KV_WALK_FIRST_SEED").unwrap_or(1);
    println!("{steps} steps from seed {first}");
    let mut sums = [0, 0];
    for index in 0..steps.div_ceil(STEPS_OF_WALK) {
        let walked = walk(&model, first + index, STEPS_OF_WALK);
        sums = [sums[0] + walked[0], sums[1] + walked[1]];
    }
    assert!(
        sums[0] > 0 && (sums[1] > 0 || steps < 1000),
        "no walk ever read a tail, or moved a cell of one: {sums:?}"
    );
}
