//! What one worker's pool tells those of the others.

use std::sync::Arc;

use crate::context::Context;
use crate::mail::Letter;
use crate::pool::{Pool, Welcome};

impl Pool {
    /// A server has told whether it is a standby: that is what whoever comes next is told, whatever else servers of other logins were told.
    pub(crate) fn learn_standby(&mut self, standby: Option<bool>, cx: &mut Context) {
        if let (Some(known), Some(standby)) = (&self.welcome, standby)
            && known.standby() != Some(standby)
        {
            let welcome = Arc::new(known.with_standby(standby));
            self.set_welcome(Arc::clone(&welcome));
            self.tell_welcome(&welcome, cx);
        }
    }

    pub(crate) fn tell_welcome(&self, welcome: &Arc<Welcome>, cx: &mut Context) {
        let credentials = Box::new(self.credentials.clone());
        for worker in cx.other_workers() {
            let (pool, welcome) = (Arc::clone(&self.name), Arc::clone(welcome));
            cx.post(worker, Letter::Welcome { pool, welcome, credentials: credentials.clone() });
        }
    }
}
