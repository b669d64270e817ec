//! The requests that wait in a directory for a line.

use super::{MAX_NODES, NodeId, NodeSet, ProtocolError};

/// A request of a node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Request {
    /// To read.
    RdS,
    /// To write, without a copy.
    RdX,
    /// To write, with a copy.
    Upgrade,
}

/// Requests in order of arrival: one byte each, with space for one of each node. That is enough,
/// because a node sends another request for a line only after its last one has been granted, and a
/// granted request has left the queue.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Queue {
    len: u8,
    entries: [u8; MAX_NODES],
}

impl Queue {
    /// Appends this request.
    pub(super) fn push(&mut self, node: NodeId, request: Request) -> Result<(), ProtocolError> {
        let place = self
            .entries
            .get_mut(self.len as usize)
            .ok_or(ProtocolError::QueueFull)?;
        *place = (node.index() as u8) << 2 | request as u8;
        self.len += 1;
        Ok(())
    }

    /// Removes and returns the first request.
    pub(super) fn pop(&mut self) -> Option<(NodeId, Request)> {
        let first = self.iter().next()?;
        self.entries.copy_within(1.., 0);
        // Unused entries are zero, so that equal queues are equal.
        self.entries[MAX_NODES - 1] = 0;
        self.len -= 1;
        Some(first)
    }

    /// Returns the queue without the requests of these nodes.
    pub(super) fn without(&self, nodes: NodeSet) -> Queue {
        let mut left = Queue::default();
        let waiting = self.iter().filter(|(node, _)| !nodes.contains(*node));
        for (place, (node, request)) in waiting.enumerate() {
            left.entries[place] = (node.index() as u8) << 2 | request as u8;
            left.len += 1;
        }
        left
    }

    /// Returns the requests in order.
    pub fn iter(&self) -> impl Iterator<Item = (NodeId, Request)> + '_ {
        self.entries[..self.len as usize].iter().map(|&entry| {
            let request = match entry & 3 {
                0 => Request::RdS,
                1 => Request::RdX,
                _ => Request::Upgrade,
            };
            (NodeId::new((entry >> 2) as usize), request)
        })
    }

    /// Returns whether a request of this node waits.
    pub fn contains(&self, node: NodeId) -> bool {
        self.iter().any(|(waiting, _)| waiting == node)
    }

    /// Returns the number of requests.
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Returns whether the queue is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_come_first_served_and_no_more_than_nodes() {
        let mut queue = Queue::default();
        let request = |number| [Request::RdS, Request::RdX, Request::Upgrade][number % 3];
        for number in 0..MAX_NODES {
            queue.push(NodeId::new(number), request(number)).unwrap();
        }
        assert_eq!(
            queue.push(NodeId::new(0), Request::RdS),
            Err(ProtocolError::QueueFull)
        );
        for number in 0..MAX_NODES {
            assert!(queue.contains(NodeId::new(number)));
            assert_eq!(queue.pop(), Some((NodeId::new(number), request(number))));
            assert!(!queue.contains(NodeId::new(number)));
        }
        assert_eq!((queue.pop(), queue), (None, Queue::default()));
    }
}
