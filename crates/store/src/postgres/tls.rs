//! TLS to PostgreSQL, with the checks that the URL asks for.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio_postgres_rustls::MakeRustlsConnect;

use rerouter_base::bounds;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verification {
    /// Nothing: TLS then protects only from those who listen.
    Nothing,
    /// That a known authority issued it, for any name.
    Authority,
    /// Its authority and its name.
    Full,
}

/// Makes TLS sessions. Without a file, the authorities are those of the system. An error does not
/// quote the path, which may be from the environment.
pub(super) fn connector(
    verification: Verification,
    authorities: Option<&Path>,
) -> Result<MakeRustlsConnect, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let config = match verification {
        Verification::Full => builder.with_root_certificates(roots(authorities)?),
        Verification::Authority | Verification::Nothing => {
            let roots = match verification {
                Verification::Nothing => None,
                _ => Some(roots(authorities)?),
            };
            let verifier = Arc::new(PartialVerifier { roots, provider });
            builder.dangerous().with_custom_certificate_verifier(verifier)
        }
    };
    Ok(MakeRustlsConnect::new(config.with_no_client_auth()))
}

fn roots(authorities: Option<&Path>) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    match authorities {
        Some(path) => {
            for certificate in read(path)? {
                let added = roots.add(certificate);
                added.map_err(|_| "`sslrootcert` holds an invalid certificate".to_owned())?;
            }
        }
        // Some of a system's certificates may be unreadable; those are left out.
        None => {
            let found = rustls_native_certs::load_native_certs();
            let found = found.map_err(|error| format!("the system's authorities: {error}"))?;
            roots.add_parsable_certificates(found);
        }
    }
    match roots.is_empty() {
        true => Err("no authority is known to check the database's certificate by: name a PEM \
                     file of certificates as `sslrootcert`"
            .to_owned()),
        false => Ok(roots),
    }
}

fn read(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let cannot = |error: std::io::Error| format!("`sslrootcert` cannot be read: {error}");
    if !std::fs::metadata(path).map_err(cannot)?.is_file() {
        // A pipe would block, a device would never end.
        return Err("`sslrootcert` is not a file".to_owned());
    }
    let (mut pem, limit) = (Vec::new(), bounds::DOCUMENT_BYTES as u64);
    let file = std::fs::File::open(path).map_err(cannot)?;
    file.take(limit).read_to_end(&mut pem).map_err(cannot)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    found.map_err(|_| "`sslrootcert` is not PEM".to_owned())
}

/// Checks less than TLS usually does, because `sslmode` says so. The signature of the handshake is
/// always checked: it shows that the server has the key of its certificate.
#[derive(Debug)]
struct PartialVerifier {
    /// The trusted authorities; without them any certificate is accepted.
    roots: Option<RootCertStore>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for PartialVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if let Some(roots) = &self.roots {
            let certificate = ParsedCertificate::try_from(end_entity)?;
            let algorithms = self.provider.signature_verification_algorithms.all;
            verify_server_cert_signed_by_trust_anchor(
                &certificate,
                roots,
                intermediates,
                now,
                algorithms,
            )?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
