//! The staging ring's protocol, checked in every order in which its threads can run.
//!
//! The plans come from the ring itself (`kernels/src/rkv-ring.cpp`); what carries them out is modelled: a host that submits
//! steps and changes the tail between them, a compute queue that writes rows, begins nodes and reads tiles, and two lanes
//! that copy. A reader must find its own tile, as it is at that moment, from when it takes it until it gives it back.

use stateright::{Checker, Model, Property};

use crate::ffi;

/// What happens before and in one step. Every layer does the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Step {
    tiles: u32,
    /// The tile that the step writes.
    written: u32,
    /// The tail is changed from outside before the step.
    restored: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Setting {
    layers: u32,
    depth: u32,
    op: bool,
    fault: ffi::rkv_fault,
}

/// Tiles of a layer, at most.
const TILES: u32 = 3;

/// What the compute queue does, one at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    GiveBack {
        released: u64,
    },
    Write {
        source: usize,
    },
    Begin {
        begun: u64,
    },
    Take {
        lane: usize,
        seq: u64,
        source: usize,
    },
    Return {
        lane: usize,
        seq: u64,
        source: usize,
        released: u64,
    },
}

/// One step as the ring planned it.
struct Planned {
    restored: bool,
    work: Vec<Work>,
    copies: [Vec<ffi::rkv_ring_copy>; 2],
}

fn plan(setting: Setting, script: &[Step]) -> Vec<Planned> {
    // SAFETY: the ring is used by this function alone and freed at its end.
    let ring = unsafe { ffi::rkv_ring_new(setting.op, setting.depth, setting.fault) };
    let mut generation = 0;
    let planned = script
        .iter()
        .map(|step| {
            generation += u64::from(step.restored);
            plan_step(ring, setting, *step, generation)
        })
        .collect();
    // SAFETY: made above, and not used again.
    unsafe { ffi::rkv_ring_free(ring) };
    planned
}

fn plan_step(ring: *mut ffi::rkv_ring, setting: Setting, step: Step, generation: u64) -> Planned {
    let tiles: Vec<ffi::rkv_ring_tile> = (0..setting.layers)
        .flat_map(|node| {
            (0..step.tiles).map(move |tile| ffi::rkv_ring_tile {
                node,
                source: u64::from(node * TILES + tile),
                late: tile == step.written,
            })
        })
        .collect();
    let no_copy = ffi::rkv_ring_copy {
        lane: 0,
        seq: 0,
        source: 0,
        after_released: 0,
        after_begun: 0,
    };
    let mut copies = vec![no_copy; tiles.len() + setting.depth as usize];
    let mut uses = vec![
        ffi::rkv_ring_use {
            lane: 0,
            seq: 0,
            released: 0
        };
        tiles.len()
    ];
    // SAFETY: the ring lives, `uses` has room for every tile and `copies` for those and a ring full more.
    let plan = unsafe {
        ffi::rkv_ring_begin(
            ring,
            tiles.as_ptr(),
            tiles.len(),
            setting.layers,
            generation,
            uses.as_mut_ptr(),
            copies.as_mut_ptr(),
        )
    };
    copies.truncate(plan.n_copies);

    let mut work = vec![Work::GiveBack {
        released: plan.discarded,
    }];
    for node in 0..setting.layers {
        work.push(Work::Write {
            source: (node * TILES + step.written) as usize,
        });
        work.push(Work::Begin {
            begun: plan.first_node + u64::from(node) + 1,
        });
        for (tile, at) in tiles
            .iter()
            .zip(&uses)
            .filter(|(tile, _)| tile.node == node)
        {
            let (lane, seq, source) = (at.lane as usize, at.seq, tile.source as usize);
            work.push(Work::Take { lane, seq, source });
            work.push(Work::Return {
                lane,
                seq,
                source,
                released: at.released,
            });
        }
    }
    let of_lane = |lane| {
        copies
            .iter()
            .filter(|copy| copy.lane == lane)
            .copied()
            .collect()
    };
    Planned {
        restored: step.restored,
        work,
        copies: [of_lane(0), of_lane(1)],
    }
}

/// What a slot holds: a tile as it was at some version, or bytes of several versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Slot {
    Mixed,
    Tile { source: usize, version: u8 },
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct State {
    submitted: usize,
    done: usize,
    worked: usize,
    copied: [usize; 2],
    copying: [Option<u8>; 2],
    released: [u64; 2],
    begun: u64,
    versions: Vec<u8>,
    slots: [Vec<Slot>; 2],
    wrong: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Action {
    Submit,
    Work,
    StartCopy(usize),
    EndCopy(usize),
}

struct Protocol {
    setting: Setting,
    steps: Vec<Planned>,
}

impl Protocol {
    fn copy(&self, state: &State, lane: usize) -> Option<ffi::rkv_ring_copy> {
        let mut at = state.copied[lane];
        for step in &self.steps[..state.submitted] {
            match step.copies[lane].get(at) {
                Some(copy) => return Some(*copy),
                None => at -= step.copies[lane].len(),
            }
        }
        None
    }

    fn slot(&self, seq: u64) -> usize {
        (seq % u64::from(self.setting.depth)) as usize
    }

    fn work(&self, state: &State) -> Option<Work> {
        let step = self.steps[..state.submitted].get(state.done)?;
        Some(step.work[state.worked])
    }

    fn can_work(&self, state: &State) -> bool {
        match self.work(state) {
            None => false,
            Some(Work::Take { lane, seq, .. }) => state.copied[lane] as u64 > seq,
            Some(_) => true,
        }
    }

    fn can_submit(&self, state: &State) -> bool {
        self.steps
            .get(state.submitted)
            .is_some_and(|step| !step.restored || state.done == state.submitted)
    }

    fn carry_out(&self, state: &mut State, work: Work) {
        match work {
            Work::GiveBack { released } => {
                state.released[0] = state.released[0].max(released);
            }
            Work::Write { source } => state.versions[source] += 1,
            Work::Begin { begun } => state.begun = begun,
            Work::Take { lane, seq, source } => self.look(state, lane, seq, source),
            Work::Return {
                lane,
                seq,
                source,
                released,
            } => {
                self.look(state, lane, seq, source);
                state.released[lane] = state.released[lane].max(released);
            }
        }
        state.worked += 1;
        if state.worked == self.steps[state.done].work.len() {
            state.worked = 0;
            state.done += 1;
        }
    }

    fn look(&self, state: &mut State, lane: usize, seq: u64, source: usize) {
        let version = state.versions[source];
        if state.slots[lane][self.slot(seq)] != (Slot::Tile { source, version }) {
            state.wrong = true;
        }
    }
}

impl Model for Protocol {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let slots = vec![Slot::Mixed; self.setting.depth as usize];
        vec![State {
            submitted: 0,
            done: 0,
            worked: 0,
            copied: [0; 2],
            copying: [None; 2],
            released: [0; 2],
            begun: 0,
            versions: vec![0; (self.setting.layers * TILES) as usize],
            slots: [slots.clone(), slots],
            wrong: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if self.can_submit(state) {
            actions.push(Action::Submit);
        }
        if self.can_work(state) {
            actions.push(Action::Work);
        }
        for lane in 0..2 {
            if state.copying[lane].is_some() {
                actions.push(Action::EndCopy(lane));
            } else if self.copy(state, lane).is_some_and(|copy| {
                copy.after_released <= state.released[lane] && copy.after_begun <= state.begun
            }) {
                actions.push(Action::StartCopy(lane));
            }
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Submit => {
                if self.steps[state.submitted].restored {
                    state.versions.iter_mut().for_each(|version| *version += 1);
                }
                state.submitted += 1;
            }
            Action::Work => {
                let work = self.work(last)?;
                self.carry_out(&mut state, work);
            }
            Action::StartCopy(lane) => {
                let copy = self.copy(last, lane)?;
                state.slots[lane][self.slot(copy.seq)] = Slot::Mixed;
                state.copying[lane] = Some(state.versions[copy.source as usize]);
            }
            Action::EndCopy(lane) => {
                let copy = self.copy(last, lane)?;
                let source = copy.source as usize;
                let version = state.copying[lane].take()?;
                if version == state.versions[source] {
                    state.slots[lane][self.slot(copy.seq)] = Slot::Tile { source, version };
                }
                state.copied[lane] += 1;
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(
                "readers find their tiles as they are",
                |_, state: &State| !state.wrong,
            ),
            Property::eventually("every step ends", |protocol: &Self, state: &State| {
                state.done == protocol.steps.len()
            }),
        ]
    }
}

/// Whether both properties hold in every order, and how many states there were.
fn holds(setting: Setting, script: &[Step]) -> (bool, usize) {
    let protocol = Protocol {
        setting,
        steps: plan(setting, script),
    };
    let checker = protocol.checker().spawn_dfs().join();
    (
        checker.discoveries().is_empty(),
        checker.unique_state_count(),
    )
}

fn kinds() -> Vec<Step> {
    let mut kinds = Vec::new();
    for tiles in 1..=2 {
        for written in 0..tiles {
            for restored in [false, true] {
                kinds.push(Step {
                    tiles,
                    written,
                    restored,
                });
            }
        }
    }
    kinds.push(Step {
        tiles: 3,
        written: 2,
        restored: false,
    });
    kinds
}

fn setting(depth: u32) -> Setting {
    Setting {
        layers: 2,
        depth,
        op: false,
        fault: ffi::RKV_FAULT_NONE,
    }
}

#[test]
fn in_every_order_of_its_threads_readers_find_their_tiles_and_no_one_waits_for_ever() {
    let mut states = 0;
    for depth in 1..=3 {
        for op in [false, true] {
            for first in kinds() {
                for second in kinds() {
                    for third in kinds() {
                        let script = [first, second, third];
                        let setting = Setting {
                            op,
                            ..setting(depth)
                        };
                        let (holds, count) = holds(setting, &script);
                        assert!(holds, "{setting:?} {script:?}");
                        states += count;
                    }
                }
            }
        }
    }
    println!("{states} states");
}

#[test]
fn each_protection_taken_out_is_found_out() {
    let growing = |tiles| Step {
        tiles,
        written: tiles - 1,
        restored: false,
    };
    let restored = Step {
        restored: true,
        ..growing(3)
    };
    let script = [growing(3), restored, growing(3)];
    for (fault, depth) in [
        (ffi::RKV_FAULT_RING_STALE, 3),
        (ffi::RKV_FAULT_RING_REUSE, 1),
        (ffi::RKV_FAULT_RING_GENERATION, 2),
    ] {
        let broken = Setting {
            fault,
            ..setting(depth)
        };
        assert!(holds(setting(depth), &script).0);
        assert!(!holds(broken, &script).0, "fault {fault} is not found");
    }
}
