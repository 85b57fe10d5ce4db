//! The certificate and key of a listener, reloaded when their files change. The old pair stays in
//! use until the new pair is valid.

use std::fmt;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use arc_swap::ArcSwap;
use log::{error, info};
use pingora::listeners::tls::{Acceptor, TlsSettings};
use pingora::tls;
use rustls::RootCertStore;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use rerouter_base::metrics::Metrics;
use rerouter_core::config::TlsFiles;

pub(super) struct TlsIdentity {
    listener: SocketAddr,
    files: TlsFiles,
    metrics: Arc<Metrics>,
    current: Arc<CurrentPair>,
    seen: Mutex<Stamps>,
}

/// Modification times of both files.
type Stamps = [Option<SystemTime>; 2];

struct CurrentPair(ArcSwap<CertifiedKey>);

impl fmt::Debug for CurrentPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CurrentPair")
    }
}

impl ResolvesServerCert for CurrentPair {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load_full())
    }
}

pub(super) struct TlsFilesError {
    /// The setting that names the file.
    pub(super) setting: &'static str,
    /// The reason, with the path of the file.
    pub(super) why: String,
}

/// Reads the certificate authorities of the system. Pingora's connectors panic if they cannot.
pub(super) fn check_authorities() -> Result<(), String> {
    let read = tls::load_platform_certs_incl_env_into_store(&mut RootCertStore::empty());
    read.map_err(|error| {
        let why = error.cause.as_ref().map_or_else(|| error.to_string(), |why| why.to_string());
        format!("the certificate authorities of this system cannot be read: {why}")
    })
}

pub(super) fn check(files: &TlsFiles) -> Result<(), TlsFilesError> {
    read(files).map(drop)
}

impl TlsIdentity {
    /// Errors never quote the key.
    pub(super) fn load(
        listener: SocketAddr,
        files: &TlsFiles,
        metrics: Arc<Metrics>,
    ) -> Result<Self, String> {
        let pair = Arc::new(read(files).map_err(|invalid| invalid.why)?);
        let seen = Mutex::new(stamps(files));
        let current = Arc::new(CurrentPair(ArcSwap::new(pair.clone())));
        let identity = TlsIdentity { listener, files: files.clone(), metrics, current, seen };
        identity.tell(&pair);
        Ok(identity)
    }

    /// Sets the metric of the time at which the pair in use expires.
    fn tell(&self, pair: &CertifiedKey) {
        if let Some(end) = pair.cert.first().and_then(|leaf| rerouter_core::config::expiry_of(leaf))
        {
            let ends = &self.metrics.process.certificates;
            ends.with_label_values(&[&self.listener.to_string()]).set(end.as_second());
        }
    }

    /// A TLS acceptor for HTTP/2 and HTTP/1.1 (by ALPN) that always uses the current pair.
    pub(super) fn acceptor(&self) -> Result<Acceptor, String> {
        let (cert, key) =
            (self.files.cert.display().to_string(), self.files.key.display().to_string());
        let mut settings = TlsSettings::intermediate(&cert, &key)
            .map_err(|error| format!("TLS of {cert}: {error}"))?;
        settings.set_cert_resolver(self.current.clone());
        settings.enable_h2();
        Ok(settings.build())
    }

    pub(super) fn reload_if_changed(&self) {
        let now = stamps(&self.files);
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if *seen != now {
            *seen = now;
            drop(seen);
            self.reload();
        }
    }

    pub(super) fn reload(&self) {
        match read(&self.files) {
            Ok(pair) => {
                self.tell(&pair);
                self.current.0.store(Arc::new(pair));
                info!("certificate {} was reloaded", self.files.cert.display());
            }
            Err(invalid) => {
                error!("the new certificate is invalid, the old one stays: {}", invalid.why)
            }
        }
    }
}

fn read(files: &TlsFiles) -> Result<CertifiedKey, TlsFilesError> {
    let of = |setting, path: &Path, error: &dyn fmt::Display| TlsFilesError {
        setting,
        why: format!("{}: {error}", path.display()),
    };
    let of_cert = |error: &dyn fmt::Display| of("tls.cert", &files.cert, error);
    let of_key = |error: &dyn fmt::Display| of("tls.key", &files.key, error);
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_file_iter(&files.cert)
        .and_then(Iterator::collect)
        .map_err(|error| of_cert(&describe(&error)))?;
    if chain.is_empty() {
        return Err(of_cert(&"holds no certificate in PEM"));
    }
    let key =
        PrivateKeyDer::from_pem_file(&files.key).map_err(|error| of_key(&describe(&error)))?;
    let key =
        rustls::crypto::ring::sign::any_supported_type(&key).map_err(|error| of_key(&error))?;
    let pair = CertifiedKey::new(chain, key);
    pair.keys_match().map_err(|_| {
        of_key(&format!("is not the key of the certificate in {}", files.cert.display()))
    })?;
    Ok(pair)
}

fn describe(error: &pem::Error) -> String {
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
