//! Who may come in: takes the names of a request (Host, Origin), its token and its cookie; gives yes, or the one
//! line that says why not and what to do.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr, SocketAddr},
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use super::{
    bucket::Bucket,
    limits,
    token::{Token, TokenDigest, cookie_of},
    user_store::UserStore,
};

/// The names under which this server may be asked for. A page of another name that resolves to our address
/// (DNS rebinding) must not get through, though the browser thinks that it is its own server.
#[derive(Clone, Debug)]
pub struct Names {
    /// Only addresses of this machine to itself.
    loopback_only: bool,
    /// Lower case.
    names: Vec<String>,
    /// Those that `--allow-host` names: a proxy may stand before us under them.
    proxies: Vec<String>,
}

impl Names {
    pub fn new(listen: SocketAddr, allowed: &[String]) -> Self {
        let loopback_only = listen.ip().is_loopback();
        let proxies: Vec<String> = allowed.iter().map(|name| plain(name)).collect();
        let mut names = vec!["localhost".to_owned()];
        if !loopback_only {
            names.push(plain(&own_name()));
        }
        names.extend(proxies.iter().cloned());
        Self { loopback_only, names, proxies }
    }

    /// Whether a `Host` is ours. An address cannot be rebound: only names can.
    pub fn knows(&self, host: &str) -> bool {
        match Authority::parse(host) {
            Some(Authority { host: Host::Address(address), .. }) => !self.loopback_only || address.is_loopback(),
            Some(Authority { host: Host::Name(name), .. }) => self.names.contains(&name),
            None => false,
        }
    }

    /// Whether an `Origin` is the page that we served under `host`. `secure`: we speak TLS ourselves.
    pub fn is_own(&self, origin: &str, host: &str, secure: bool) -> bool {
        let Some((scheme, authority)) = origin.split_once("://") else { return false };
        // Before a proxy that speaks TLS we are reached by plain HTTP.
        if !(scheme == "https" || (scheme == "http" && !secure)) {
            return false;
        }
        let Some(from) = Authority::parse(authority) else { return false };
        let through_proxy = matches!(&from.host, Host::Name(name) if self.proxies.contains(name));
        through_proxy || Authority::parse(host).is_some_and(|host| host == from)
    }
}

/// What this machine calls itself.
pub fn own_name() -> String {
    gethostname::gethostname().to_string_lossy().into_owned()
}

fn plain(name: &str) -> String {
    name.trim_end_matches('.').to_ascii_lowercase()
}

#[derive(Debug, PartialEq)]
enum Host {
    Address(IpAddr),
    Name(String),
}

/// `name`, `name:port`, `1.2.3.4:port` or `[::1]:port`, and nothing else.
#[derive(Debug, PartialEq)]
struct Authority {
    host: Host,
    port: Option<u16>,
}

impl Authority {
    fn parse(text: &str) -> Option<Self> {
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (host, rest) = rest.split_once(']')?;
                (Host::Address(IpAddr::V6(host.parse::<Ipv6Addr>().ok()?)), rest.strip_prefix(':').or(blank(rest)))
            }
            None => {
                let (host, port) = text.split_once(':').unwrap_or((text, ""));
                (named(host)?, Some(port))
            }
        };
        let port = port?;
        let port = if port.is_empty() { None } else { Some(port.parse().ok()?) };
        Some(Self { host, port })
    }
}

fn blank(rest: &str) -> Option<&str> {
    rest.is_empty().then_some(rest)
}

fn named(host: &str) -> Option<Host> {
    let known = |character: u8| character.is_ascii_alphanumeric() || b"-._".contains(&character);
    if host.is_empty() || host.len() > 255 || !host.bytes().all(known) {
        return None;
    }
    Some(host.parse().map_or_else(|_| Host::Name(plain(host)), |address| Host::Address(IpAddr::V4(address))))
}

/// Wrong tokens and cookies, counted by address.
#[derive(Debug, Default)]
pub struct Attempts {
    by_address: Mutex<HashMap<IpAddr, Bucket>>,
}

impl Attempts {
    /// True while this address may try.
    pub fn may_try(&self, from: IpAddr, now: Instant) -> bool {
        let mut all = self.by_address.lock().unwrap_or_else(PoisonError::into_inner);
        all.get_mut(&network(from)).is_none_or(|bucket| !bucket.is_empty(now))
    }

    pub fn note_wrong(&self, from: IpAddr, now: Instant) {
        let mut all = self.by_address.lock().unwrap_or_else(PoisonError::into_inner);
        let mut from = network(from);
        if all.len() >= limits::WRONG_ADDRESSES && !all.contains_key(&from) {
            all.retain(|_, bucket| !bucket.is_full(now));
            if all.len() >= limits::WRONG_ADDRESSES {
                from = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
            }
        }
        let fresh = || Bucket::new(limits::WRONG_PER_SECOND, limits::WRONG_BURST, now);
        all.entry(from).or_insert_with(fresh).take(1, now);
    }
}

/// Whoever has one IPv6 address has 2^64 of them.
pub fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
    }
}

/// What a request shows of its right to come in.
#[derive(Debug, PartialEq)]
pub enum DoorStanding {
    /// It may come in: as this person, where there is a list of people.
    Welcome(Option<TokenDigest>),
    /// It came by the link: it gets this cookie, and goes on without the token.
    ByLink(String),
    /// It has nothing.
    Stranger,
    /// What it has is wrong.
    Wrong,
    /// Too many wrong ones came from there.
    TooMany,
}

/// What opens the door.
#[derive(Debug)]
pub enum Key {
    /// Whoever can reach it comes in.
    None,
    /// One token for all.
    Shared(Token),
    /// Everybody's own.
    Own(Arc<UserStore>),
}

impl Key {
    /// The cookie of a link's token that is right.
    fn cookie_of(&self, link: &str) -> Option<String> {
        match self {
            Self::None => None,
            Self::Shared(token) => token.is(link).then(|| token.cookie().to_owned()),
            Self::Own(user_store) => user_store.of_token(&TokenDigest::of_link(link)).map(|_| cookie_of(link)),
        }
    }

    /// Whose cookie that is, if it is right.
    fn owner_of(&self, cookie: &str) -> Option<Option<TokenDigest>> {
        match self {
            Self::None => None,
            Self::Shared(token) => token.is_cookie(cookie).then_some(None),
            Self::Own(user_store) => {
                let digest = TokenDigest::of_cookie(cookie);
                user_store.of_token(&digest).map(|_| Some(digest))
            }
        }
    }
}

/// The key, and whoever tried it.
#[derive(Debug)]
pub struct Authenticator {
    pub key: Key,
    attempts: Attempts,
}

impl Authenticator {
    pub fn new(key: Key) -> Self {
        Self { key, attempts: Attempts::default() }
    }

    /// `cookies`: the values of our cookie that came along.
    pub fn standing(&self, from: IpAddr, link: Option<&str>, cookies: &[&str], now: Instant) -> DoorStanding {
        if matches!(self.key, Key::None) {
            return DoorStanding::Welcome(None);
        }
        if link.is_none() && cookies.is_empty() {
            return DoorStanding::Stranger;
        }
        // A cookie of an earlier server may lie beside the right one.
        let right = match link {
            Some(link) => self.key.cookie_of(link).map(DoorStanding::ByLink),
            None => cookies.iter().find_map(|cookie| self.key.owner_of(cookie)).map(DoorStanding::Welcome),
        };
        // What is right counts whatever else came from there: an address can be a whole team's, behind its proxy.
        if let Some(standing) = right {
            return standing;
        }
        if !self.attempts.may_try(from, now) {
            return DoorStanding::TooMany;
        }
        self.attempts.note_wrong(from, now);
        DoorStanding::Wrong
    }
}

#[cfg(test)]
mod tests;
