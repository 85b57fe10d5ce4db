//! The barrier, against a model of several gateways in which each step may come late.

use proptest::prelude::*;

use super::*;

const TIMING: Timing = Timing { lease: Duration::from_millis(1_000) };

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A gateway other than the one that waits.
#[derive(Default)]
struct Gateway {
    lease: Duration,
    /// The revision of its tables.
    applied: u64,
    lease_until: Duration,
    /// When the read began on which its next renewal is based.
    read: Option<Duration>,
    row: Option<usize>,
}

struct Row {
    peer: Peer,
    fenced: bool,
    /// When it was renewed last, by the clock of the database. A naive barrier relies on it.
    renewed: Duration,
}

#[derive(Default)]
struct World {
    now: Duration,
    rev: u64,
    rows: Vec<Option<Row>>,
    gateways: Vec<Gateway>,
    waiting: Vec<Barrier>,
    acknowledged: u64,
    naive: bool,
    looked: Duration,
    /// The longest time between two looks.
    longest_pause: Duration,
}

#[derive(Clone, Debug)]
enum Move {
    Pass(u64),
    /// A gateway reads the log and applies it.
    Read(usize),
    /// It renews after its last read, or registers anew.
    Renew(usize),
    Commit,
    Look,
}

impl World {
    fn new(gateways: usize, naive: bool) -> World {
        let mut world = World { now: ms(10_000), looked: ms(10_000), naive, ..World::default() };
        for at in 0..gateways {
            // The second gateway has a longer lease than the one that waits.
            let lease = if at == 1 { TIMING.lease * 5 / 2 } else { TIMING.lease };
            world.gateways.push(Gateway { lease, ..Gateway::default() });
            world.act(&Move::Read(at));
            world.act(&Move::Renew(at));
        }
        world
    }

    fn act(&mut self, one: &Move) {
        match *one {
            Move::Pass(by) => self.now += ms(by),
            Move::Read(at) => {
                let row = self.gateways[at].row;
                let row = row.unwrap_or_else(|| self.register(at));
                let gateway = &mut self.gateways[at];
                gateway.row = Some(row);
                gateway.read = Some(self.now);
                gateway.applied = self.rev;
            }
            Move::Renew(at) => self.renew(at),
            Move::Commit => {
                self.rev += 1;
                self.waiting.push(Barrier::new(self.rev, self.now));
            }
            Move::Look => self.look(),
        }
        self.check();
    }

    fn register(&mut self, at: usize) -> usize {
        let peer = Peer {
            id: self.rows.len().to_string(),
            directory: at.to_string(),
            process: at.to_string(),
            name: at.to_string(),
            lease: self.gateways[at].lease,
            applied: self.gateways[at].applied,
            renewals: 0,
            serves_stale: false,
        };
        self.rows.push(Some(Row { peer, fenced: false, renewed: self.now }));
        self.rows.len() - 1
    }

    fn renew(&mut self, at: usize) {
        let gateway = &mut self.gateways[at];
        let (Some(began), Some(row)) = (gateway.read.take(), gateway.row) else { return };
        match &mut self.rows[row] {
            Some(row) if !row.fenced => {
                row.peer.applied = gateway.applied;
                row.peer.renewals += 1;
                row.renewed = self.now;
                gateway.lease_until = began + gateway.lease;
            }
            _ => {
                gateway.lease_until = Duration::ZERO;
                gateway.row = None;
            }
        }
        // Its earlier rows are no longer needed.
        if let Some(row) = gateway.row {
            for (other, earlier) in self.rows.iter_mut().enumerate() {
                if other != row
                    && earlier.as_ref().is_some_and(|one| one.peer.name == at.to_string())
                {
                    *earlier = None;
                }
            }
        }
    }

    fn look(&mut self) {
        self.longest_pause = self.longest_pause.max(self.now - self.looked);
        self.looked = self.now;
        let pauses = 2 * self.longest_pause;
        let others: Vec<Peer> = self.rows.iter().flatten().map(|row| row.peer.clone()).collect();
        let mut waiting = std::mem::take(&mut self.waiting);
        waiting.retain_mut(|barrier| {
            if self.naive {
                let holds = |row: &Row| {
                    row.peer.applied < barrier.rev && self.now < row.renewed + TIMING.lease
                };
                let done = !self.rows.iter().flatten().any(holds);
                self.acknowledged = self.acknowledged.max(if done { barrier.rev } else { 0 });
                return !done;
            }
            match barrier.step(self.now, TIMING, &others) {
                BarrierStep::Wait => true,
                BarrierStep::Fence => {
                    let mut ids = BTreeSet::new();
                    for row in self.rows.iter_mut().flatten() {
                        if row.peer.applied < barrier.rev {
                            row.fenced = true;
                            ids.insert(row.peer.id.clone());
                        }
                    }
                    barrier.fenced(self.now, &ids);
                    true
                }
                BarrierStep::Done(end) => {
                    let longest = self.gateways.iter().map(|one| one.lease).max().unwrap();
                    let stopped = Timing { lease: longest }.until_stopped();
                    let late = barrier.began + TIMING.patience() + stopped;
                    // One look fences, and another one ends the wait.
                    assert!(self.now <= late + pauses, "{:?}", self.now - barrier.began);
                    for row in &mut self.rows {
                        if row.as_ref().is_some_and(|row| end.over.contains(&row.peer.id)) {
                            *row = None;
                        }
                    }
                    self.acknowledged = self.acknowledged.max(barrier.rev);
                    false
                }
            }
        });
        self.waiting = waiting;
    }

    /// The gateways that answer from tables without a change that was acknowledged.
    fn wrong(&self) -> usize {
        let wrong = |gateway: &&Gateway| {
            self.now < gateway.lease_until && gateway.applied < self.acknowledged
        };
        self.gateways.iter().filter(wrong).count()
    }

    fn check(&self) {
        if !self.naive {
            assert_eq!(self.wrong(), 0, "at {:?}", self.now);
        }
    }
}

/// A gateway reads the log, and renews when its lease has long passed.
fn stalled_between_read_and_renewal() -> Vec<Move> {
    let mut moves = vec![Move::Read(0), Move::Commit];
    for _ in 0..30 {
        moves.extend([Move::Pass(49), Move::Read(1), Move::Renew(1), Move::Look]);
    }
    // Its read began 1.47 s ago.
    moves
}

#[test]
fn a_gateway_that_stalls_is_waited_for_until_its_lease_is_over() {
    let mut world = World::new(2, false);
    stalled_between_read_and_renewal().iter().for_each(|one| world.act(one));
    assert_eq!(world.acknowledged, 1);
    world.act(&Move::Renew(0));
    assert!(world.gateways[0].row.is_none(), "it was fenced");
    world.act(&Move::Read(0));
    world.act(&Move::Renew(0));
    assert!(world.gateways[0].lease_until > world.now, "it registered anew");
}

#[test]
fn a_renewal_after_a_short_lease_fools_the_naive_barrier_only() {
    // The lease by the row has passed, but a lease from the read in progress has not.
    let moves = [
        Move::Pass(990),
        Move::Read(0),
        Move::Commit,
        Move::Pass(20),
        Move::Look,
        Move::Renew(0),
        Move::Look,
    ];
    for naive in [true, false] {
        let mut world = World::new(1, naive);
        moves.iter().for_each(|one| world.act(one));
        assert_eq!((world.wrong() == 1, world.acknowledged == 1), (naive, naive));
    }
}

#[test]
fn a_gateway_that_goes_on_without_a_lease_is_named() {
    let peer = Peer {
        id: "1".into(),
        directory: "b".into(),
        process: "b".into(),
        name: "b".into(),
        lease: Duration::ZERO,
        applied: 0,
        renewals: 3,
        serves_stale: true,
    };
    let others = [peer];
    let mut barrier = Barrier::new(1, ms(0));
    assert_eq!(barrier.step(ms(249), TIMING, &others), BarrierStep::Wait);
    assert_eq!(barrier.step(ms(250), TIMING, &others), BarrierStep::Fence);
    barrier.fenced(ms(260), &BTreeSet::from(["1".to_owned()]));
    assert_eq!(barrier.step(ms(1_309), TIMING, &others), BarrierStep::Wait);
    let end = BarrierEnd { over: vec![], unconfirmed: vec!["b".into()] };
    assert_eq!(barrier.step(ms(1_310), TIMING, &others), BarrierStep::Done(end));
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let one = prop_oneof![
        3 => (1_u64..400).prop_map(Move::Pass),
        3 => (0_usize..3).prop_map(Move::Read),
        3 => (0_usize..3).prop_map(Move::Renew),
        1 => Just(Move::Commit),
        4 => Just(Move::Look),
    ];
    proptest::collection::vec(one, 1..200)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn no_gateway_answers_without_an_acknowledged_change(moves in moves()) {
        let mut world = World::new(3, false);
        moves.iter().for_each(|one| world.act(one));
    }
}
