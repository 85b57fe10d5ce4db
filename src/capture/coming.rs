//! The captures that are on their way: of requests under way, or waiting for the writer. A deletion that comes before a
//! capture is written finds it here, and then it is never written.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::id::{RequestId, UserId};

/// The table of them. As large as the requests under way and the queue of the writer, both of which are bounded.
#[derive(Clone, Debug, Default)]
pub struct Table(Arc<Mutex<Entries>>);

#[derive(Debug, Default)]
struct Entries {
    all: HashMap<RequestId, Entry>,
    /// How many of them are ending: mostly none, and then no reader looks for them.
    ending: usize,
}

#[derive(Debug)]
struct Entry {
    owner: UserId,
    /// What it is a replay of, or a shadow.
    copy_of: Option<RequestId>,
    deleted: bool,
    /// The client is about to have all of its answer.
    ending: bool,
}

/// One capture on its way; the entry leaves the table with this value.
#[derive(Debug)]
pub struct Coming {
    id: RequestId,
    table: Table,
}

impl Table {
    /// Enters a capture that will be; `copy_of` is what it is a replay of, or a shadow.
    pub fn announce(&self, id: &RequestId, owner: &UserId, copy_of: Option<&RequestId>) -> Coming {
        let entry = Entry {
            owner: owner.clone(),
            copy_of: copy_of.cloned(),
            deleted: false,
            ending: false,
        };
        self.entries().all.insert(id.clone(), entry);
        Coming { id: id.clone(), table: self.clone() }
    }

    /// Notes that the end of its answer is about to be written: who has seen that may ask for the capture.
    pub fn ends(&self, id: &RequestId) {
        let mut entries = self.entries();
        let begun = entries
            .all
            .get_mut(id)
            .is_some_and(|entry| !std::mem::replace(&mut entry.ending, true));
        entries.ending += usize::from(begun);
    }

    /// Those whose answers end and which are not written yet, of one owner or of all.
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

    /// Whether any of these is still on its way.
    pub fn has_any(&self, ids: &[RequestId]) -> bool {
        let entries = self.entries();
        ids.iter().any(|id| entries.all.contains_key(id))
    }

    /// Whose one is that is on its way.
    pub fn owner(&self, id: &RequestId) -> Option<UserId> {
        self.entries().all.get(id).map(|entry| entry.owner.clone())
    }

    /// Marks one as deleted if it is on its way and, where an owner is given, that owner's. Whether it was.
    pub fn delete(&self, id: &RequestId, owner: Option<&UserId>) -> bool {
        let mut entries = self.entries();
        let found =
            entries.all.get_mut(id).filter(|entry| owner.is_none_or(|owner| entry.owner == *owner));
        found.map(|entry| entry.deleted = true).is_some()
    }

    /// Marks what is on its way, that owner's where one is given, as a replay or shadow of any of `gone`, or of one that this
    /// marks; they are `gone` then too.
    /// Gives those that were not marked before.
    pub fn delete_replays(
        &self,
        gone: &mut HashSet<RequestId>,
        owner: Option<&UserId>,
    ) -> Vec<RequestId> {
        let mut entries = self.entries();
        let mut marked: Vec<RequestId> = Vec::new();
        loop {
            let before = marked.len();
            for (id, entry) in entries.all.iter_mut().filter(|(_, entry)| {
                !entry.deleted && owner.is_none_or(|owner| entry.owner == *owner)
            }) {
                if entry.copy_of.as_ref().is_some_and(|of| gone.contains(of)) {
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

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Coming {
    /// It turns out to be a replay, and its original's owner's.
    pub fn is_replay(&self, owner: &UserId, of: &RequestId) {
        if let Some(entry) = self.table.entries().all.get_mut(&self.id) {
            entry.owner = owner.clone();
            entry.copy_of = Some(of.clone());
        }
    }

    /// Whether it was deleted before it was written.
    pub fn is_deleted(&self) -> bool {
        self.table.entries().all.get(&self.id).is_some_and(|entry| entry.deleted)
    }
}

impl Drop for Coming {
    fn drop(&mut self) {
        let mut entries = self.table.entries();
        let gone = entries.all.remove(&self.id);
        entries.ending -= usize::from(gone.is_some_and(|entry| entry.ending));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_its_owner_deletes_what_is_on_its_way() {
        let table = Table::default();
        let (id, original) = (RequestId::known("req_1"), RequestId::known("req_0"));
        let (ann, bob) = (UserId::known("usr_ann"), UserId::known("usr_bob"));
        let coming = table.announce(&id, &ann, None);
        assert!(!table.delete(&id, Some(&bob)) && !coming.is_deleted());
        assert_eq!((table.owner(&id), table.owner(&original)), (Some(ann.clone()), None));
        let mut of_original = HashSet::from([original.clone()]);
        assert!(table.delete_replays(&mut of_original, None).is_empty() && !coming.is_deleted());
        coming.is_replay(&bob, &original);
        assert!(!table.delete(&id, Some(&ann)) && !coming.is_deleted());
        let (of_coming, other) = (RequestId::known("req_2"), RequestId::known("req_3"));
        let below = table.announce(&of_coming, &bob, Some(&id));
        let apart = table.announce(&other, &bob, Some(&other));
        assert!(
            table.delete_replays(&mut of_original, Some(&ann)).is_empty() && !coming.is_deleted(),
            "bob's are not hers"
        );
        let mut marked = table.delete_replays(&mut of_original, None);
        marked.sort();
        assert_eq!(marked, [id.clone(), of_coming]);
        assert!(coming.is_deleted() && below.is_deleted() && !apart.is_deleted());
        assert!(table.delete_replays(&mut of_original, None).is_empty(), "marked before");
        drop((below, apart));
        let another = table.announce(&original, &ann, None);
        assert!(table.delete(&original, None) && another.is_deleted());
        drop((coming, another));
        assert!(!table.delete(&id, None) && table.entries().all.is_empty());
    }
    #[test]
    fn an_end_is_the_owners_to_wait_for_until_it_is_written() {
        let table = Table::default();
        let (id, other, ann) =
            (RequestId::known("req_1"), RequestId::known("req_2"), UserId::known("usr_ann"));
        let (coming, begun) = (table.announce(&id, &ann, None), table.announce(&other, &ann, None));
        table.ends(&id);
        table.ends(&id);
        table.ends(&RequestId::known("req_3"));
        assert!(table.ending(Some(&UserId::known("usr_bob"))).is_empty());
        assert_eq!(
            (table.ending(Some(&ann)), table.ending(None)),
            (vec![id.clone()], vec![id.clone()])
        );
        assert!(table.has_any(&[other, id.clone()]));
        drop((coming, begun));
        assert!(
            table.ending(None).is_empty() && !table.has_any(&[id]) && table.entries().ending == 0
        );
    }
}
