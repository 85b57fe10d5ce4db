//! Certificates in PEM files: authorities, read with the document that names them, and expiry
//! times.

use std::io::Read;

use jiff::Timestamp;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use x509_parser::prelude::{FromDer, X509Certificate};

use rerouter_base::bounds;

/// Reads the authorities in a file, in DER. Errors do not quote the file's path, which may come
/// from the environment.
pub(super) fn load(path: &str) -> Result<Vec<Vec<u8>>, String> {
    let mut pem = Vec::new();
    if !std::fs::metadata(path)
        .map_err(|error| format!("the file cannot be read: {error}"))?
        .is_file()
    {
        // Reading a pipe would block, and reading a device might never end.
        return Err("is not a file".to_owned());
    }
    let limit = bounds::DOCUMENT_BYTES as u64;
    let read = std::fs::File::open(path).and_then(|file| file.take(limit).read_to_end(&mut pem));
    read.map_err(|error| format!("the file cannot be read: {error}"))?;
    parse(&pem)
}

/// The expiry time of the first certificate in a PEM text.
pub fn expiry(pem: &[u8]) -> Option<Timestamp> {
    expiry_of(&CertificateDer::pem_slice_iter(pem).next()?.ok()?)
}

/// The expiry time of a certificate in DER.
pub fn expiry_of(der: &[u8]) -> Option<Timestamp> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    Timestamp::from_second(certificate.validity().not_after.timestamp()).ok()
}

fn parse(pem: &[u8]) -> Result<Vec<Vec<u8>>, String> {
    let found: Result<Vec<CertificateDer<'static>>, _> =
        CertificateDer::pem_slice_iter(pem).collect();
    let found = found.map_err(|_| "the file is not PEM".to_owned())?;
    if found.is_empty() {
        return Err("the file holds no certificate".to_owned());
    }
    let mut roots = RootCertStore::empty();
    for certificate in &found {
        // A certificate must be valid for both parsers that connections use.
        let whole = X509Certificate::from_der(certificate).is_ok_and(|(rest, _)| rest.is_empty());
        if !whole || roots.add(certificate.clone()).is_err() {
            return Err("the file holds an invalid certificate of an authority".to_owned());
        }
    }
    Ok(found.iter().map(|certificate| certificate.to_vec()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_certificates_are_authorities() {
        for (pem, wanted) in [
            ("", "no certificate"),
            ("hello", "no certificate"),
            (
                "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
                "invalid certificate",
            ),
            ("-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n", "not PEM"),
        ] {
            let why = parse(pem.as_bytes()).unwrap_err();
            assert!(why.contains(wanted), "{pem:?}: {why}");
        }
        assert!(load("/nonexistent").unwrap_err().contains("cannot be read"));
    }
}
