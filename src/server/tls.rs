//! A listener's certificate and key, read again when their files change: the old pair stays until a new one is whole.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use arc_swap::ArcSwap;
use log::{error, info};
use pingora::listeners::tls::{Acceptor, TlsSettings};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use crate::config::TlsFiles;

/// A listener's identity.
pub(super) struct Identity {
    files: TlsFiles,
    current: Arc<Current>,
    seen: Mutex<Stamps>,
}

type Stamps = [Option<SystemTime>; 2];

struct Current(ArcSwap<CertifiedKey>);

impl fmt::Debug for Current {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Current")
    }
}

impl ResolvesServerCert for Current {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load_full())
    }
}

/// Which of the two files is at fault, and why.
pub(super) enum Unfit {
    Cert(String),
    Key(String),
}

impl Unfit {
    /// Why, with the name of the file.
    pub(super) fn why(self) -> String {
        match self {
            Unfit::Cert(why) | Unfit::Key(why) => why,
        }
    }
}

/// Whether a listener can show these files.
pub(super) fn check(files: &TlsFiles) -> Result<(), Unfit> {
    read(files).map(|_| ())
}

impl Identity {
    /// Reads the pair; what is wrong with it is said without quoting the key.
    pub(super) fn load(files: &TlsFiles) -> Result<Self, String> {
        let pair = read(files).map_err(Unfit::why)?;
        let seen = Mutex::new(stamps(files));
        Ok(Identity {
            files: files.clone(),
            current: Arc::new(Current(ArcSwap::from_pointee(pair))),
            seen,
        })
    }

    /// What shakes hands for a listener: HTTP/2 and HTTP/1.1 by ALPN, and always the pair of the moment.
    pub(super) fn acceptor(&self) -> Result<Acceptor, String> {
        let (cert, key) =
            (self.files.cert.display().to_string(), self.files.key.display().to_string());
        let mut settings = TlsSettings::intermediate(&cert, &key)
            .map_err(|error| format!("TLS of {cert}: {error}"))?;
        settings.set_cert_resolver(self.current.clone());
        settings.enable_h2();
        Ok(settings.build())
    }

    /// Reads the pair again if either file has changed since the last look.
    pub(super) fn look(&self) {
        let now = stamps(&self.files);
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if *seen != now {
            *seen = now;
            drop(seen);
            self.reload();
        }
    }

    /// Reads the pair again.
    pub(super) fn reload(&self) {
        match read(&self.files) {
            Ok(pair) => {
                self.current.0.store(Arc::new(pair));
                info!("certificate {} was read again", self.files.cert.display());
            }
            Err(unfit) => error!("certificate not taken, the old one stays: {}", unfit.why()),
        }
    }
}

fn read(files: &TlsFiles) -> Result<CertifiedKey, Unfit> {
    let of = |path: &Path, error: &dyn fmt::Display| format!("{}: {error}", path.display());
    let of_cert = |error: &dyn fmt::Display| Unfit::Cert(of(&files.cert, error));
    let of_key = |error: &dyn fmt::Display| Unfit::Key(of(&files.key, error));
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_file_iter(&files.cert)
        .and_then(Iterator::collect)
        .map_err(|error| of_cert(&told(&error)))?;
    if chain.is_empty() {
        return Err(of_cert(&"holds no certificate in PEM"));
    }
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|error| of_key(&told(&error)))?;
    let key =
        rustls::crypto::ring::sign::any_supported_type(&key).map_err(|error| of_key(&error))?;
    let pair = CertifiedKey::new(chain, key);
    pair.keys_match().map_err(|_| {
        of_key(&format!("is not the key of the certificate in {}", files.cert.display()))
    })?;
    Ok(pair)
}

/// What is wrong with a file of PEM, in the system's words where it cannot be read.
fn told(error: &pem::Error) -> String {
    match error {
        pem::Error::Io(error) => error.to_string(),
        pem::Error::NoItemsFound => "holds no private key in PEM".to_owned(),
        _ => "is not PEM".to_owned(),
    }
}

fn stamps(files: &TlsFiles) -> Stamps {
    [&files.cert, &files.key]
        .map(|file| std::fs::metadata(file).and_then(|found| found.modified()).ok())
}
