//! Which headers of a capture stay. Most come again and again: those that stay are remembered.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::Redactor;

/// Headers that are remembered; one that falls on the place of another takes it.
const REMEMBERED: usize = 256;
/// Bytes of the longest value that is remembered.
const LONGEST: usize = 128;

/// Tells which headers may be kept. Belongs to one redactor.
#[derive(Default)]
pub(crate) struct HeaderFilter {
    /// Names and values of headers that are no credentials.
    clean: Vec<Option<Box<(String, String)>>>,
}

impl HeaderFilter {
    /// Whether a header of a request stays.
    pub(crate) fn keeps_request(&mut self, redactor: &Redactor, name: &str, value: &str) -> bool {
        self.is_clean(redactor, name, value)
    }

    /// Whether a header of an answer stays.
    pub(crate) fn keeps_response(&mut self, redactor: &Redactor, name: &str, value: &str) -> bool {
        self.is_clean(redactor, name, value) || redactor.keeps_challenge(name, value)
    }

    fn is_clean(&mut self, redactor: &Redactor, name: &str, value: &str) -> bool {
        let hash = xxh3_64_with_seed(value.as_bytes(), xxh3_64_with_seed(name.as_bytes(), 0));
        if self.clean.is_empty() {
            self.clean.resize(REMEMBERED, None);
        }
        let place = self.clean.get_mut(hash as usize % REMEMBERED);
        let known = |header: &(String, String)| header.0 == name && header.1 == value;
        if place.as_ref().is_some_and(|place| place.as_deref().is_some_and(known)) {
            return true;
        }
        let is_clean = redactor.keeps(name, value);
        if let Some(place) = place.filter(|_| is_clean && name.len() + value.len() <= LONGEST) {
            *place = Some(Box::new((name.to_owned(), value.to_owned())));
        }
        is_clean
    }
}
