//! The staging ring's protocol, checked in every order in which its threads can run.
//!
//! The plans come from the ring itself (`kernels/src/rkv-ring.cpp`); what carries them out is modelled: a host that submits
//! steps and changes the tail between them, a compute queue that writes rows, begins nodes and reads tiles, and two lanes
//! that copy. A reader must find every row of its own tile, as it is at that moment, from when it takes it until it gives it
//! back.

use stateright::{Checker, Model, Property};

use crate::ffi;

/// What happens before and in one step. Every layer does the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Step {
    tiles: u32,
    /// The tile that the step writes: one more row, or all of them again.
    written: u32,
    rewrites: bool,
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

/// Tiles of a layer, and rows of a tile, at most.
const TILES: u32 = 3;
const ROWS: usize = 3;

/// A tile where its reader finds it.
#[derive(Debug, Clone, Copy)]
struct Read {
    at: ffi::rkv_ring_use,
    source: usize,
    rows: usize,
}

/// What the compute queue does, one at a time.
#[derive(Debug, Clone)]
enum Work {
    GiveBack(u64),
    Write(usize, std::ops::Range<u8>),
    Begin(u64),
    Take(Read),
    Return(Read),
}

/// One step as the ring planned it.
struct Planned {
    restored: bool,
    work: Vec<Work>,
    copies: [Vec<ffi::rkv_ring_copy>; 2],
}

/// Rows of each tile that are in use, the same in every layer.
type RowsInUse = [u32; TILES as usize];

fn plan(setting: Setting, script: &[Step]) -> Vec<Planned> {
    // SAFETY: the ring is used by this function alone and freed at its end.
    let ring = unsafe { ffi::rkv_ring_new(setting.op, setting.depth, setting.fault) };
    let mut generation = 0;
    let mut rows = [1; TILES as usize];
    let planned = script
        .iter()
        .map(|step| {
            generation += u64::from(step.restored);
            plan_step(ring, setting, *step, &mut rows, generation)
        })
        .collect();
    // SAFETY: made above, and not used again.
    unsafe { ffi::rkv_ring_free(ring) };
    planned
}

fn plan_step(
    ring: *mut ffi::rkv_ring,
    setting: Setting,
    step: Step,
    rows: &mut RowsInUse,
    generation: u64,
) -> Planned {
    let written = step.written as usize;
    let from = match (step.rewrites, rows[written] as usize) {
        (true, _) => 0,
        (false, ROWS) => ROWS as u32 - 1,
        (false, _) => {
            rows[written] += 1;
            rows[written] - 1
        }
    };
    let tiles: Vec<ffi::rkv_ring_tile> = (0..setting.layers)
        .flat_map(|node| (0..step.tiles).map(move |tile| (node, tile)))
        .map(|(node, tile)| ffi::rkv_ring_tile {
            node,
            source: u64::from(node * TILES + tile),
            rows_stable: if tile == step.written {
                from
            } else {
                rows[tile as usize]
            },
            rows_all: rows[tile as usize],
        })
        .collect();
    let (uses, copies, plan) = begin(ring, setting, &tiles, generation);

    let mut work = vec![Work::GiveBack(plan.discarded)];
    for node in 0..setting.layers {
        let source = (node * TILES + step.written) as usize;
        work.push(Work::Write(source, from as u8..rows[written] as u8));
        work.push(Work::Begin(plan.first_node + u64::from(node) + 1));
        for (tile, at) in tiles
            .iter()
            .zip(&uses)
            .filter(|(tile, _)| tile.node == node)
        {
            let read = Read {
                at: *at,
                source: tile.source as usize,
                rows: tile.rows_all as usize,
            };
            work.extend([Work::Take(read), Work::Return(read)]);
        }
    }
    let of_lane = |lane| {
        let own = copies.iter().filter(|copy| copy.lane == lane);
        own.copied().collect()
    };
    Planned {
        restored: step.restored,
        work,
        copies: [of_lane(0), of_lane(1)],
    }
}

fn begin(
    ring: *mut ffi::rkv_ring,
    setting: Setting,
    tiles: &[ffi::rkv_ring_tile],
    generation: u64,
) -> (
    Vec<ffi::rkv_ring_use>,
    Vec<ffi::rkv_ring_copy>,
    ffi::rkv_ring_plan,
) {
    let mut uses = vec![ffi::rkv_ring_use::default(); tiles.len()];
    let room = 2 * tiles.len() + setting.depth as usize;
    let mut copies = vec![ffi::rkv_ring_copy::default(); room];
    // SAFETY: the ring lives, `uses` has room for every tile and `copies` for two of each and a ring full more.
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
    (uses, copies, plan)
}

/// What a slot holds: for which tile it was filled, and the version of each row; `None` while it is copied, or never was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Slot {
    seq: u64,
    source: usize,
    rows: [Option<u8>; ROWS],
}

const EMPTY: Slot = Slot {
    seq: u64::MAX,
    source: 0,
    rows: [None; ROWS],
};

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct State {
    submitted: usize,
    done: usize,
    worked: usize,
    copied: [usize; 2],
    copying: [Option<[u8; ROWS]>; 2],
    released: u64,
    begun: u64,
    versions: Vec<[u8; ROWS]>,
    slots: Vec<Slot>,
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
    /// The next copy of a lane, if the step that orders it was submitted.
    fn copy(&self, state: &State, lane: usize) -> Option<ffi::rkv_ring_copy> {
        let given = self.steps[..state.submitted].iter();
        let mut copies = given.flat_map(|step| &step.copies[lane]);
        copies.nth(state.copied[lane]).copied()
    }

    fn slot(&self, seq: u64) -> usize {
        (seq % u64::from(self.setting.depth)) as usize
    }

    fn work(&self, state: &State) -> Option<Work> {
        let step = self.steps[..state.submitted].get(state.done)?;
        Some(step.work[state.worked].clone())
    }

    fn can_work(&self, state: &State) -> bool {
        match self.work(state) {
            None => false,
            Some(Work::Take(read)) => {
                (0..2).all(|lane| state.copied[lane] as u64 >= read.at.copied[lane])
            }
            Some(_) => true,
        }
    }

    fn can_submit(&self, state: &State) -> bool {
        let next = self.steps.get(state.submitted);
        next.is_some_and(|step| !step.restored || state.done == state.submitted)
    }

    fn carry_out(&self, state: &mut State, work: Work) {
        match work {
            Work::GiveBack(released) => state.released = state.released.max(released),
            Work::Write(source, rows) => {
                for row in rows {
                    state.versions[source][usize::from(row)] += 1;
                }
            }
            Work::Begin(begun) => state.begun = begun,
            Work::Take(read) => self.look(state, read),
            Work::Return(read) => {
                self.look(state, read);
                state.released = state.released.max(read.at.released);
            }
        }
        state.worked += 1;
        if state.worked == self.steps[state.done].work.len() {
            state.worked = 0;
            state.done += 1;
        }
    }

    fn look(&self, state: &mut State, read: Read) {
        let slot = &state.slots[self.slot(read.at.seq)];
        let now = &state.versions[read.source];
        let right = slot.seq == read.at.seq
            && slot.source == read.source
            && (0..read.rows).all(|row| slot.rows[row] == Some(now[row]));
        state.wrong |= !right;
    }
}

/// The rows of a copy.
fn rows_of(copy: &ffi::rkv_ring_copy) -> std::ops::Range<usize> {
    copy.row0 as usize..(copy.row0 + copy.rows) as usize
}

impl Model for Protocol {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            submitted: 0,
            done: 0,
            worked: 0,
            copied: [0; 2],
            copying: [None; 2],
            released: 0,
            begun: 0,
            versions: vec![[0; ROWS]; (self.setting.layers * TILES) as usize],
            slots: vec![EMPTY; self.setting.depth as usize],
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
                copy.after_released <= state.released
                    && copy.after_begun <= state.begun
                    && copy.after_ahead <= state.copied[0] as u64
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
                    for version in state.versions.iter_mut().flatten() {
                        *version += 1;
                    }
                }
                state.submitted += 1;
            }
            Action::Work => {
                let work = self.work(last)?;
                self.carry_out(&mut state, work);
            }
            Action::StartCopy(lane) => {
                let copy = self.copy(last, lane)?;
                let source = copy.source as usize;
                let slot = &mut state.slots[self.slot(copy.seq)];
                if slot.seq != copy.seq {
                    *slot = Slot {
                        seq: copy.seq,
                        source,
                        ..EMPTY
                    };
                }
                slot.rows[rows_of(&copy)].fill(None);
                state.copying[lane] = Some(state.versions[source]);
            }
            Action::EndCopy(lane) => {
                let copy = self.copy(last, lane)?;
                let versions = state.copying[lane].take()?;
                let slot = &mut state.slots[self.slot(copy.seq)];
                for row in rows_of(&copy).filter(|_| slot.seq == copy.seq) {
                    slot.rows[row] = Some(versions[row]);
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
    let holds = checker.discoveries().is_empty();
    (holds, checker.unique_state_count())
}

const fn step(tiles: u32, written: u32, rewrites: bool, restored: bool) -> Step {
    Step {
        tiles,
        written,
        rewrites,
        restored,
    }
}

const KINDS: [Step; 7] = [
    step(1, 0, false, false),
    step(1, 0, true, false),
    step(1, 0, false, true),
    step(2, 0, true, false),
    step(2, 1, false, false),
    step(2, 1, true, true),
    step(3, 2, false, false),
];

const fn setting(depth: u32, op: bool, fault: ffi::rkv_fault) -> Setting {
    Setting {
        layers: 2,
        depth,
        op,
        fault,
    }
}

#[test]
fn in_every_order_of_its_threads_readers_find_their_tiles_and_no_one_waits_for_ever() {
    let mut states = 0;
    let pairs = KINDS
        .iter()
        .flat_map(|first| KINDS.map(|second| (*first, second)));
    let scripts: Vec<[Step; 3]> = pairs
        .flat_map(|(first, second)| KINDS.map(|third| [first, second, third]))
        .collect();
    // On a machine such as valgrind makes, a few orders must do.
    let slow = std::env::var_os("ROLLING_KV_TEST_SLOW_MACHINE").is_some();
    let stride = if slow { 100 } else { 1 };
    for (depth, op) in [(1, false), (2, false), (3, false), (1, true), (2, true)] {
        let setting = setting(depth, op, ffi::RKV_FAULT_NONE);
        for script in scripts.iter().step_by(stride) {
            let (holds, count) = holds(setting, script);
            assert!(holds, "{setting:?} {script:?}");
            states += count;
        }
    }
    println!("{states} states");
}

#[test]
fn each_protection_taken_out_is_found_out() {
    let script = [
        step(3, 2, false, false),
        step(3, 2, false, true),
        step(3, 2, false, false),
        step(1, 0, false, false),
    ];
    for (fault, depth) in [
        (ffi::RKV_FAULT_RING_STALE, 3),
        (ffi::RKV_FAULT_RING_REUSE, 1),
        (ffi::RKV_FAULT_RING_GENERATION, 2),
        (ffi::RKV_FAULT_RING_IDENTITY, 2),
    ] {
        let sound = setting(depth, false, ffi::RKV_FAULT_NONE);
        assert!(holds(sound, &script).0);
        let broken = setting(depth, false, fault);
        assert!(!holds(broken, &script).0, "fault {fault} is not found");
    }
}
