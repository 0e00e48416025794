use std::pin::pin;
use std::task::{Context, Waker};

use lock_core::MemoryBackend;
use tokio::runtime::Builder;

use super::*;
use crate::protocol::Known;

#[test]
fn a_runtime_that_shuts_down_leaves_the_marks_to_the_next() {
    let runtime = || Builder::new_current_thread().enable_time().build().unwrap();
    let known = Arc::new(Mutex::new(Known::new(3)));
    let nodes: Arc<[Node]> = (0..3)
        .map(|number| Node::new(Arc::new(MemoryBackend::new()), number, &known))
        .collect();
    let members = Members::new(&nodes, None, None);
    let ended = runtime();
    let handle = ended.handle().clone();
    drop(ended);
    {
        let _within = handle.enter();
        let joining = pin!(join(&members, &[0, 1, 2]));
        assert!(joining.poll(&mut Context::from_waker(Waker::noop())).is_ready());
    }
    let marks = || members.state.lock().marks.len();
    assert_eq!(marks(), 0, "its tasks ran");
    runtime().block_on(async {
        join(&members, &[0, 1, 2]).await.unwrap();
        assert_eq!(marks(), 3);
        assert!(matches!(members.state.lock().presence, Presence::Joined(_)));
    });
    let is_left = matches!(members.state.lock().presence, Presence::Left);
    assert!(is_left, "its task has gone with its runtime");
}
