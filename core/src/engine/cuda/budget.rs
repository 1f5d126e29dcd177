//! Memory of the device, shared out among sites that are worked on at a time.

use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// Bytes that sites may still take.
pub(super) struct Budget {
    left: Mutex<u64>,
    freed: Condvar,
    most: u64,
}

/// A site's share, given back when it is dropped.
pub(super) struct BudgetShare {
    budget: Arc<Budget>,
    bytes: u64,
}

impl Budget {
    /// `free`: bytes free on the device now. A fifth stays for libraries and for others.
    pub fn new(free: u64) -> Self {
        let most = free / 5 * 4;
        Self { left: Mutex::new(most), freed: Condvar::new(), most }
    }

    /// Waits until so much is left. More than there is at all is cut down: then the site has the device to
    /// itself, and CUDA says whether it fits.
    pub fn take(self: &Arc<Self>, bytes: u64) -> BudgetShare {
        let bytes = bytes.min(self.most);
        let left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        let mut left = self.freed.wait_while(left, |left| *left < bytes).unwrap_or_else(PoisonError::into_inner);
        *left -= bytes;
        BudgetShare { budget: self.clone(), bytes }
    }
}

impl Drop for BudgetShare {
    fn drop(&mut self) {
        *self.budget.left.lock().unwrap_or_else(PoisonError::into_inner) += self.bytes;
        self.budget.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_site_waits_until_another_is_done() {
        let budget = Arc::new(Budget::new(100));
        let first = budget.take(60);
        let waiting = {
            let budget = budget.clone();
            std::thread::spawn(move || drop(budget.take(40)))
        };
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert!(!waiting.is_finished(), "80 bytes, 60 taken: 40 must wait");
        drop(first);
        waiting.join().unwrap();
        assert_eq!(budget.take(1 << 40).bytes, 80);
    }
}
