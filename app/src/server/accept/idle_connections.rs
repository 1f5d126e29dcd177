//! Connections that hold a place and ask for nothing: takes who begins and who ends to do so, gives whom to send away
//! when all places are taken.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Notify;

use crate::server::access::network;

/// By number, in the order in which they began to wait.
#[derive(Default)]
pub struct IdleConnections {
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    last: u64,
    callers: BTreeMap<u64, (IpAddr, Arc<Notify>)>,
}

impl IdleConnections {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Of the address that has the most of them, the one that waits longest: many from one place cost others nothing.
    pub fn send_one_away(&self) {
        let mut waiting = self.lock();
        let mut by_address: BTreeMap<IpAddr, (usize, u64)> = BTreeMap::new();
        for (number, (from, _)) in &waiting.callers {
            by_address.entry(*from).or_insert((0, *number)).0 += 1;
        }
        let longest = by_address.values().max_by_key(|(num, oldest)| (*num, std::cmp::Reverse(*oldest)));
        if let Some((_, leave)) = longest.and_then(|(_, oldest)| waiting.callers.remove(oldest)) {
            leave.notify_one();
        }
    }
}

/// One connection.
pub struct Caller {
    idle: Arc<IdleConnections>,
    from: IpAddr,
    leave: Arc<Notify>,
    number: Mutex<Option<u64>>,
}

impl Caller {
    /// It waits from the first moment: whoever connects may never ask.
    pub fn new(idle: Arc<IdleConnections>, from: IpAddr) -> Self {
        let caller = Self { idle, from: network(from), leave: Arc::default(), number: Mutex::default() };
        caller.waits();
        caller
    }

    fn waits(&self) {
        let mut waiting = self.idle.lock();
        waiting.last += 1;
        let number = waiting.last;
        waiting.callers.insert(number, (self.from, self.leave.clone()));
        drop(waiting);
        *self.number.lock().unwrap_or_else(PoisonError::into_inner) = Some(number);
    }

    fn goes(&self) {
        if let Some(number) = self.number.lock().unwrap_or_else(PoisonError::into_inner).take() {
            self.idle.lock().callers.remove(&number);
        }
    }

    /// It asked for something; it waits again when that is dropped.
    pub fn is_served(&self) -> Served<'_> {
        self.goes();
        Served(self)
    }

    /// Returns when it has to make way.
    pub async fn sent_away(&self) {
        self.leave.notified().await;
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        self.goes();
    }
}

pub struct Served<'a>(&'a Caller);

impl Drop for Served<'_> {
    fn drop(&mut self) {
        self.0.waits();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    async fn left(caller: &Caller) -> bool {
        timeout(Duration::from_millis(1), caller.sent_away()).await.is_ok()
    }

    #[tokio::test]
    async fn who_crowds_makes_way_and_who_is_served_stays() {
        let idle = Arc::new(IdleConnections::default());
        let call = |from: [u8; 4]| Caller::new(idle.clone(), from.into());
        let alone = call([10, 0, 0, 1]);
        let crowd = [(); 3].map(|()| call([10, 0, 0, 2]));
        let served = crowd[0].is_served();
        idle.send_one_away();
        assert!(!left(&alone).await && !left(&crowd[0]).await && left(&crowd[1]).await);
        drop(served);
        idle.send_one_away();
        assert!(!left(&crowd[0]).await && left(&crowd[2]).await, "the longest first");
        drop(crowd);
        idle.send_one_away();
        assert!(left(&alone).await);
        idle.send_one_away();
        drop(alone);
        assert!(idle.lock().callers.is_empty());
    }
}
