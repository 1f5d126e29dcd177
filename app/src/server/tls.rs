//! Takes the files of a certificate and its key, gives what turns a connection into an encrypted one, or the line
//! that says what is wrong with them.

use std::{path::Path, sync::Arc};

use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        ServerConfig,
        crypto::ring::default_provider,
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    },
};

use crate::files;

/// PEM files: the certificate first, then those that lead to its root.
pub fn acceptor(certificate: &Path, key: &Path) -> Result<TlsAcceptor, String> {
    let chain = files::read(certificate, files::SMALL).map_err(|error| error.to_string())?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&chain).collect();
    let chain = chain.map_err(|error| format!("{error}: {}", certificate.display()))?;
    if chain.is_empty() {
        return Err(format!("no certificate in it: {}", certificate.display()));
    }
    // A group may read it, as where several servers share one; nobody else.
    let bytes = files::read_private(key, files::SMALL, 0o037, |mode| {
        format!("others can get at this private key (its mode is {mode:03o}, chmod 600): {}", key.display())
    });
    let bytes = bytes.map_err(|error| error.to_string())?;
    let private = PrivateKeyDer::from_pem_slice(&bytes);
    let private = private.map_err(|_| format!("no private key in it: {}", key.display()))?;
    let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, private));
    let mut config = config.map_err(|error| format!("{error}: {}", certificate.display()))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_files_are_a_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("empty"), "").unwrap();
        std::fs::write(path("junk"), "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").unwrap();
        let line = |certificate: &str, key: &str| acceptor(&path(certificate), &path(key)).map(|_| ()).unwrap_err();
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            for (mode, part) in [
                (0o600, "no private key in it: "),
                (0o640, "no private key in it: "),
                (0o644, "others can get at this private key (its mode is 644, chmod 600): "),
                (0o604, "others can get at this private key"),
                (0o660, "others can get at this private key"),
            ] {
                std::fs::set_permissions(path("empty"), std::fs::Permissions::from_mode(mode)).unwrap();
                assert!(line("junk", "empty").starts_with(part), "{mode:o}: {}", line("junk", "empty"));
            }
            std::fs::set_permissions(path("empty"), std::fs::Permissions::from_mode(0o600)).unwrap();
        }
        assert!(line("none", "none").starts_with("no such file or folder: "));
        assert!(line("empty", "empty").starts_with("no certificate in it: "));
        assert!(line("junk", "empty").starts_with("no private key in it: "));
    }
}
