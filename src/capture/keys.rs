//! The keys that keys of captures are sealed under: those of earlier master keys go when no capture is left of their time.

use super::index::Archive;
use super::segment::format;
use super::segment::reader::Segment;
use crate::blocking::blocking;
use crate::store::StoreError;

impl Archive {
    /// Forgets, in the store, what the captures of earlier master keys were sealed under, where no segment needs it any more;
    /// nothing while a segment cannot be opened, or captures wait to be moved into one. What is written from now on needs none
    /// of them. Gives the numbers of those master keys.
    pub async fn forget_keys(&self) -> Result<Vec<u32>, StoreError> {
        if self.make.keys.len() < 2 || self.store.write_captures(|index| index.has_old()).await? {
            return Ok(Vec::new());
        }
        let archive = self.clone();
        let looked = blocking(move || archive.keys_in_use()).await?;
        let Some(used) = looked? else { return Ok(Vec::new()) };
        let all = self.make.numbers.iter().zip(&used).skip(1);
        let gone: Vec<u32> = all.filter(|(_, used)| !**used).map(|(number, _)| *number).collect();
        for number in &gone {
            self.store.forget_capture_key(*number).await?;
        }
        Ok(gone)
    }

    /// Of each key whether a segment is sealed under it; none when that cannot be told.
    fn keys_in_use(&self) -> Result<Option<Vec<bool>>, StoreError> {
        let mut used = vec![false; self.make.keys.len()];
        let entries = match std::fs::read_dir(&self.make.dir) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Some(used)),
            entries => entries?,
        };
        for entry in entries {
            let Some(number) = format::number(&entry?.file_name().to_string_lossy()) else {
                continue;
            };
            match Segment::open(&self.make.dir, number, &self.make.keys) {
                Ok(segment) => {
                    if let Some(used) = segment.sealed_under().and_then(|at| used.get_mut(at)) {
                        *used = true;
                    }
                }
                // It left meanwhile.
                Err(damage) if damage.is_absent() => {}
                Err(_) => return Ok(None),
            }
        }
        Ok(Some(used))
    }
}

#[cfg(test)]
mod tests {
    use super::super::index::tests::{archive, captures, segments};
    use super::*;
    use crate::id::Random;
    use crate::secret::{Keyring, SecretBytes};
    use crate::store::Store;
    use std::sync::Arc;

    #[tokio::test]
    async fn captures_of_each_master_key_are_read_and_its_key_goes_with_the_last_of_them() {
        let dir = tempfile::tempdir().unwrap();
        let first = archive(dir.path()).await;
        let all = captures(0..4);
        first.append(Arc::new(all[..2].to_vec())).await.unwrap();
        // Not closed, as after a crash: the next process finds what the index does not know.
        drop(first);
        let master = SecretBytes::new([9; 32]);
        let second = Keyring::new(&SecretBytes::new([8; 32]), 2, Keyring::from(&master).retired());
        let third = Keyring::new(&SecretBytes::new([7; 32]), 3, second.retired());
        let store = Store::open(dir.path(), b"fingerprint").await.unwrap();
        let opened = |keys: &Keyring| Archive::new(store.clone(), keys, Random::seeded(5), true);
        let archive = opened(&second);
        archive.recover().await.unwrap();
        archive.catch_up_at_last().await;
        archive.append(Arc::new(all[2..].to_vec())).await.unwrap();
        archive.close().await.unwrap();
        let archive = opened(&third);
        for capture in &all {
            assert_eq!(archive.get(&capture.head.id).await.unwrap().as_ref(), Some(capture));
        }
        assert!(
            opened(&Keyring::from(&SecretBytes::new([7; 32]))).get(&all[0].head.id).await.is_err(),
            "not without them"
        );
        assert_eq!(archive.forget_keys().await.unwrap(), [] as [u32; 0]);
        let files = segments(dir.path());
        assert_eq!(files.len(), 2);
        let whole = std::fs::read(&files[0]).unwrap();
        std::fs::write(&files[0], b"no segment").unwrap();
        assert_eq!(
            opened(&third).forget_keys().await.unwrap(),
            [] as [u32; 0],
            "what cannot be opened may need any"
        );
        std::fs::write(&files[0], whole).unwrap();
        std::fs::remove_file(&files[1]).unwrap();
        assert_eq!(opened(&third).forget_keys().await.unwrap(), [2]);
        std::fs::remove_file(&files[0]).unwrap();
        assert_eq!(opened(&third).forget_keys().await.unwrap(), [2, 1]);
        assert_eq!(
            opened(&Keyring::from(&master)).forget_keys().await.unwrap(),
            [] as [u32; 0],
            "that of now stays"
        );
    }
}
