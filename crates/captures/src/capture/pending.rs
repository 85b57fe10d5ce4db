//! Captures that are not stored yet, because their requests are under way or they wait for the
//! writer. If a deletion finds a capture here, it is never stored.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rerouter_base::id::{KeyId, RequestId, UserId};
use rerouter_store::{CaptureFilter, Reach};

/// All pending captures. Their number is limited by the requests under way and by the writer's
/// queue.
#[derive(Clone, Debug, Default)]
pub struct PendingCaptures(Arc<Mutex<PendingEntries>>);

#[derive(Debug, Default)]
struct PendingEntries {
    all: HashMap<RequestId, PendingEntry>,
    /// Number of pending captures whose answers end right now. It is usually zero, and then readers
    /// need not search for them.
    ending: usize,
}

#[derive(Debug)]
struct PendingEntry {
    owner: UserId,
    key: Option<KeyId>,
    /// The original, if this is a replay or a shadow.
    copy_of: Option<RequestId>,
    deleted: bool,
    /// The client is about to get the end of the answer.
    ending: bool,
}

/// A pending capture. Dropping it removes its entry.
#[derive(Debug)]
pub struct PendingCapture {
    id: RequestId,
    all: PendingCaptures,
}

impl PendingCaptures {
    /// `copy_of` is the original, for a replay or a shadow.
    pub fn announce(
        &self,
        id: &RequestId,
        (owner, key): (&UserId, Option<&KeyId>),
        copy_of: Option<&RequestId>,
    ) -> PendingCapture {
        let entry = PendingEntry {
            owner: owner.clone(),
            key: key.cloned(),
            copy_of: copy_of.cloned(),
            deleted: false,
            ending: false,
        };
        self.entries().all.insert(id.clone(), entry);
        PendingCapture { id: id.clone(), all: self.clone() }
    }

    /// Notes that the end of an answer is about to be sent: a client that has read it may ask for
    /// the capture.
    pub fn ends(&self, id: &RequestId) {
        let mut entries = self.entries();
        let begun = entries
            .all
            .get_mut(id)
            .is_some_and(|entry| !std::mem::replace(&mut entry.ending, true));
        entries.ending += usize::from(begun);
    }

    /// The pending captures of this owner, or of everybody, whose answers have ended.
    pub fn ending(&self, owner: Option<&UserId>) -> Vec<RequestId> {
        let entries = self.entries();
        if entries.ending == 0 {
            return Vec::new();
        }
        let ending = entries
            .all
            .iter()
            .filter(|(_, entry)| entry.ending && owner.is_none_or(|owner| entry.owner == *owner));
        ending.map(|(id, _)| id.clone()).collect()
    }

    pub(crate) fn has_any(&self, ids: &[RequestId]) -> bool {
        let entries = self.entries();
        ids.iter().any(|id| entries.all.contains_key(id))
    }

    pub fn whose(&self, id: &RequestId) -> Option<(UserId, Option<KeyId>)> {
        self.entries().all.get(id).map(|entry| (entry.owner.clone(), entry.key.clone()))
    }

    /// Marks a pending capture as deleted, if it is in reach. Returns whether it did.
    pub fn delete(&self, id: &RequestId, reach: &Reach) -> bool {
        let mut entries = self.entries();
        let found = entries.all.get_mut(id);
        let found = found.filter(|entry| reach.covers(&entry.owner, entry.key.as_ref()));
        found.map(|entry| entry.deleted = true).is_some()
    }

    /// Marks all captures as deleted that match this filter by reach, key and time.
    pub fn delete_all(&self, filter: &CaptureFilter) {
        let until_us = filter.until_us.unwrap_or(i64::MAX);
        for (id, entry) in &mut self.entries().all {
            let is_older = id.at().is_none_or(|at| at.as_microsecond() < until_us);
            let is_of_key = filter.key.is_none() || filter.key == entry.key;
            let reached = filter.reach.covers(&entry.owner, entry.key.as_ref());
            entry.deleted |= is_older && is_of_key && reached;
        }
    }

    /// Marks as deleted all replays and shadows of captures in `gone`, and of these again, that are
    /// in reach. Adds them to `gone`, and returns those that were not marked before.
    pub fn delete_replays(&self, gone: &mut HashSet<RequestId>, reach: &Reach) -> Vec<RequestId> {
        let mut entries = self.entries();
        let mut marked: Vec<RequestId> = Vec::new();
        loop {
            let before = marked.len();
            for (id, entry) in entries.all.iter_mut().filter(|(_, entry)| !entry.deleted) {
                let reached = reach.covers(&entry.owner, entry.key.as_ref());
                if reached && entry.copy_of.as_ref().is_some_and(|of| gone.contains(of)) {
                    entry.deleted = true;
                    gone.insert(id.clone());
                    marked.push(id.clone());
                }
            }
            if marked.len() == before {
                return marked;
            }
        }
    }

    fn entries(&self) -> MutexGuard<'_, PendingEntries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PendingCapture {
    /// Turns the entry into a replay of `of`, with the original's owner and key.
    pub fn is_replay(&self, (owner, key): (&UserId, Option<&KeyId>), of: &RequestId) {
        if let Some(entry) = self.all.entries().all.get_mut(&self.id) {
            entry.owner = owner.clone();
            entry.key = key.cloned();
            entry.copy_of = Some(of.clone());
        }
    }

    /// Whether the capture was deleted before it was stored.
    pub fn is_deleted(&self) -> bool {
        self.all.entries().all.get(&self.id).is_some_and(|entry| entry.deleted)
    }
}

impl Drop for PendingCapture {
    fn drop(&mut self) {
        let mut entries = self.all.entries();
        let gone = entries.all.remove(&self.id);
        entries.ending -= usize::from(gone.is_some_and(|entry| entry.ending));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_its_owner_deletes_a_pending_capture() {
        let all = PendingCaptures::default();
        let (id, original) = (RequestId::known("req_1"), RequestId::known("req_0"));
        let (ann, bob) = (UserId::known("usr_ann"), UserId::known("usr_bob"));
        let pending = all.announce(&id, (&ann, None), None);
        assert!(!all.delete(&id, &Reach::Owner(bob.clone())) && !pending.is_deleted());
        assert_eq!((all.whose(&id), all.whose(&original)), (Some((ann.clone(), None)), None));
        let mut of_original = HashSet::from([original.clone()]);
        assert!(
            all.delete_replays(&mut of_original, &Reach::All).is_empty() && !pending.is_deleted()
        );
        pending.is_replay((&bob, None), &original);
        assert!(!all.delete(&id, &Reach::Owner(ann.clone())) && !pending.is_deleted());
        let (of_pending, other) = (RequestId::known("req_2"), RequestId::known("req_3"));
        let below = all.announce(&of_pending, (&bob, None), Some(&id));
        let apart = all.announce(&other, (&bob, None), Some(&other));
        assert!(
            all.delete_replays(&mut of_original, &Reach::Owner(ann.clone())).is_empty()
                && !pending.is_deleted(),
            "bob's are not hers"
        );
        let mut marked = all.delete_replays(&mut of_original, &Reach::All);
        marked.sort();
        assert_eq!(marked, [id.clone(), of_pending]);
        assert!(pending.is_deleted() && below.is_deleted() && !apart.is_deleted());
        assert!(all.delete_replays(&mut of_original, &Reach::All).is_empty(), "marked before");
        drop((below, apart));
        let another = all.announce(&original, (&ann, None), None);
        assert!(all.delete(&original, &Reach::All) && another.is_deleted());
        drop((pending, another));
        assert!(!all.delete(&id, &Reach::All) && all.entries().all.is_empty());
    }

    /// The caller announces a reroute before the owner of its original is known.
    #[test]
    fn a_replay_is_deleted_with_the_captures_of_its_originals_key() {
        let all = PendingCaptures::default();
        let (id, original) = (RequestId::known("req_1"), RequestId::known("req_0"));
        let (ann, bob) = (UserId::known("usr_ann"), UserId::known("usr_bob"));
        let (anns, bobs) = (KeyId::known("key_ann"), KeyId::known("key_bob"));
        let of = |key: &KeyId| CaptureFilter { key: Some(key.clone()), ..CaptureFilter::default() };
        let reroute = all.announce(&id, (&bob, Some(&bobs)), Some(&original));
        all.delete_all(&of(&anns));
        assert!(!reroute.is_deleted());
        reroute.is_replay((&ann, Some(&anns)), &original);
        all.delete_all(&of(&bobs));
        assert!(!reroute.is_deleted(), "it is none of his now");
        all.delete_all(&of(&anns));
        assert!(reroute.is_deleted());
    }

    #[test]
    fn an_end_is_its_owners_to_wait_for_until_it_is_stored() {
        let all = PendingCaptures::default();
        let (id, other, ann) =
            (RequestId::known("req_1"), RequestId::known("req_2"), UserId::known("usr_ann"));
        let (pending, begun) =
            (all.announce(&id, (&ann, None), None), all.announce(&other, (&ann, None), None));
        all.ends(&id);
        all.ends(&id);
        all.ends(&RequestId::known("req_3"));
        assert!(all.ending(Some(&UserId::known("usr_bob"))).is_empty());
        assert_eq!(
            (all.ending(Some(&ann)), all.ending(None)),
            (vec![id.clone()], vec![id.clone()])
        );
        assert!(all.has_any(&[other, id.clone()]));
        drop((pending, begun));
        assert!(all.ending(None).is_empty() && !all.has_any(&[id]) && all.entries().ending == 0);
    }
}
