//! Takes what a person asked to listen on, gives a bound listener and the address that a browser opens, or the line
//! that says why not.

use std::net::{IpAddr, SocketAddr, TcpListener, ToSocketAddrs};

use super::access::own_name;

/// `ADDRESS:PORT`, or `NAME:PORT`; of several addresses of a name the first IPv4 one.
pub fn resolve(listen: &str) -> Result<SocketAddr, String> {
    let unknown = || format!("no address to listen on (write it as 127.0.0.1:7878): {listen}");
    let all: Vec<SocketAddr> = listen.to_socket_addrs().map_err(|_| unknown())?.collect();
    all.iter().find(|address| address.is_ipv4()).or(all.first()).copied().ok_or_else(unknown)
}

pub fn bind(address: SocketAddr) -> Result<TcpListener, String> {
    let failed = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::AddrInUse => {
            format!("another program listens there (choose another port with --listen, 0 takes a free one): {address}")
        }
        std::io::ErrorKind::PermissionDenied => format!("no permission to listen there: {address}"),
        std::io::ErrorKind::AddrNotAvailable => format!("no address of this machine: {address}"),
        _ => format!("{error}: {address}"),
    };
    let listener = TcpListener::bind(address).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    Ok(listener)
}

/// What a browser opens. Where every address of the machine is listened on, its name.
pub fn link(address: SocketAddr, secure: bool) -> String {
    let scheme = if secure { "https" } else { "http" };
    let host = match address.ip() {
        ip if ip.is_unspecified() => own_name(),
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("[{ip}]"),
    };
    format!("{scheme}://{host}:{}/", address.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_links() {
        assert_eq!(resolve("127.0.0.1:80"), Ok(SocketAddr::from(([127, 0, 0, 1], 80))));
        assert!(resolve("localhost:80").unwrap().ip().is_loopback());
        assert_eq!(link(resolve("[::1]:7878").unwrap(), true), "https://[::1]:7878/");
        assert_eq!(link(resolve("0.0.0.0:1").unwrap(), false), format!("http://{}:1/", own_name()));
        for listen in ["", "7878", "127.0.0.1", "127.0.0.1:http", "127.0.0.1:70000"] {
            assert!(resolve(listen).unwrap_err().starts_with("no address to listen on"), "{listen}");
        }
    }

    #[test]
    fn a_busy_port_is_a_line() {
        let first = bind(resolve("127.0.0.1:0").unwrap()).unwrap();
        let line = bind(first.local_addr().unwrap()).unwrap_err();
        assert!(
            line.starts_with("another program listens there")
                && line.ends_with(&first.local_addr().unwrap().to_string())
        );
    }
}
