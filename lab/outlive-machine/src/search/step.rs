//! The steps of a machine without time: inputs to agents and directories, and the actions that
//! follow.

use super::payload::Payload;
use super::violation::Violation;
use super::world::{Access, Agent, Choice, Kind, Message, Packet, Rules, World};
use crate::protocol::{
    DirectoryAction, DirectoryStep, Epoch, NodeAction, NodeId, NodeInput, ProtocolError,
    ToDirectory, ToNode,
};

impl<D: Payload> World<D> {
    /// Takes a step.
    ///
    /// # Errors
    /// Returns the [`Violation`] that occurs in the step itself; [`check`](World::check) finds
    /// those of a state.
    pub fn apply(&mut self, rules: &Rules, choice: Choice) -> Result<(), Violation> {
        match choice {
            Choice::Access(node, line, access) => {
                self.spend(node);
                self.access(rules, node, line, access)
            }
            Choice::Evict(node, line) => {
                self.spend(node);
                self.tell(rules, node, line, NodeInput::Evict, None)?;
                let kept = self.agent(node, line).takes_room();
                if kept {
                    Err(Violation::NotDropped { node, line })
                } else {
                    Ok(())
                }
            }
            Choice::Deliver(place) => {
                let packet = self.network.swap_remove(place);
                match packet.message {
                    Message::Up(message) => {
                        self.deliver_up(rules, packet.node, packet.line, message)
                    }
                    Message::Down(message) => {
                        if matches!(
                            message,
                            ToNode::GrantE(_) | ToNode::GrantM(_) | ToNode::GrantUpgrade
                        ) {
                            self.agent_mut(packet.node, packet.line).epoch = packet.epoch;
                        }
                        let told = self.tell(
                            rules,
                            packet.node,
                            packet.line,
                            NodeInput::Message(message),
                            None,
                        );
                        match told {
                            Err(Violation::Protocol(ProtocolError::NodeUndefined { .. }))
                                if rules.swallowed.contains(&Kind::Down(message.kind())) =>
                            {
                                Ok(())
                            }
                            told => told,
                        }
                    }
                }
            }
        }
    }

    fn spend(&mut self, node: NodeId) {
        if let Some(left) = &mut self.left {
            left[node.index()] -= 1;
        }
    }

    pub(super) fn access(
        &mut self,
        rules: &Rules,
        node: NodeId,
        line: usize,
        access: Access,
    ) -> Result<(), Violation> {
        let input = match access {
            Access::Load => NodeInput::Load,
            Access::Store => NodeInput::Store,
            Access::Prefetch => NodeInput::Prefetch,
        };
        self.tell(rules, node, line, input, Some(access))
    }

    /// Gives an agent an input, executes its actions, and retries the accesses that these resume.
    fn tell(
        &mut self,
        rules: &Rules,
        node: NodeId,
        line: usize,
        input: NodeInput<D>,
        access: Option<Access>,
    ) -> Result<(), Violation> {
        let mut resumed = self.tell_once(rules, node, line, input, access)?;
        // Waiting accesses are retried. With sound tables one retry is enough: the access is
        // performed, or waits for another message.
        for _ in 0..4 {
            if !resumed {
                return Ok(());
            }
            let waiting = std::mem::take(&mut self.agent_mut(node, line).waiting);
            resumed = false;
            for (access, input) in [
                (Access::Load, NodeInput::Load),
                (Access::Store, NodeInput::Store),
            ] {
                if waiting & access.bit() != 0 {
                    resumed |= self.tell_once(rules, node, line, input, Some(access))?;
                }
            }
        }
        Err(Violation::EndlessStep { node, line })
    }

    fn tell_once(
        &mut self,
        rules: &Rules,
        node: NodeId,
        line: usize,
        input: NodeInput<D>,
        access: Option<Access>,
    ) -> Result<bool, Violation> {
        let agent = *self.agent(node, line);
        let step = rules.tables.node.step(agent.state, input, agent.copy)?;
        self.agent_mut(node, line).state = step.state();
        let mut resumed = false;
        let mut settled = !matches!(access, Some(Access::Load | Access::Store));
        for action in step.actions() {
            match action {
                NodeAction::Perform => {
                    self.perform(node, line, access)?;
                    settled = true;
                }
                NodeAction::Wait => {
                    self.agent_mut(node, line).waiting |= access.map_or(0, Access::bit);
                    settled = true;
                }
                NodeAction::Install(contents) => self.agent_mut(node, line).copy = Some(contents),
                NodeAction::Drop => self.agent_mut(node, line).copy = None,
                NodeAction::Send(message) => self.network.push(Packet {
                    line,
                    node,
                    epoch: Epoch(0),
                    message: Message::Up(message),
                }),
                NodeAction::Resume => resumed = true,
            }
        }
        if settled {
            Ok(resumed)
        } else {
            Err(Violation::LostAccess { node, line })
        }
    }

    fn perform(
        &mut self,
        node: NodeId,
        line: usize,
        access: Option<Access>,
    ) -> Result<(), Violation> {
        let Agent { state, copy, .. } = *self.agent(node, line);
        let store = access == Some(Access::Store);
        let right = if store {
            state.is_writable()
        } else {
            state.is_readable()
        };
        let copy = copy
            .filter(|_| right)
            .ok_or(Violation::NoRight { node, line, state })?;
        // This holds for a store too: it changes one word, and keeps the other words of the line.
        if copy != self.homes[line].last {
            return Err(Violation::StaleAccess { node, line });
        }
        if store {
            self.stores += u64::from(!D::ABSTRACT);
            let written = copy.written(self.stores);
            if D::ABSTRACT {
                self.overtake(line);
            }
            self.agent_mut(node, line).copy = Some(written);
            self.homes[line].last = written;
        }
        Ok(())
    }

    /// Marks all contents of the line as old, wherever they are.
    fn overtake(&mut self, line: usize) {
        for agent in self.agents.iter_mut().skip(line).step_by(self.shape.lines) {
            agent.copy = agent.copy.map(D::overtaken);
        }
        self.homes[line].memory = self.homes[line].memory.overtaken();
        for packet in self.network.iter_mut().filter(|packet| packet.line == line) {
            packet.message = match packet.message {
                Message::Up(message) => Message::Up(
                    message
                        .try_map(|data| Some(data.overtaken()))
                        .expect("the function always returns Some"),
                ),
                Message::Down(message) => Message::Down(message.map(D::overtaken)),
            };
        }
    }

    fn deliver_up(
        &mut self,
        rules: &Rules,
        from: NodeId,
        line: usize,
        message: ToDirectory<D>,
    ) -> Result<(), Violation> {
        let home = &mut self.homes[line];
        let step = match rules
            .tables
            .directory
            .step(&home.directory, from, message, home.memory)
        {
            Err(ProtocolError::DirectoryUndefined { .. })
                if rules.swallowed.contains(&Kind::Up(message.kind())) =>
            {
                return Ok(());
            }
            step => step?,
        };
        self.carry_out(line, &step);
        Ok(())
    }

    /// Executes the actions of a directory's step.
    pub(super) fn carry_out(&mut self, line: usize, step: &DirectoryStep<D>) {
        let home = &mut self.homes[line];
        home.directory = step.directory;
        for action in step.actions() {
            match action {
                DirectoryAction::Send(to, message) => {
                    let packets = to.iter().map(|node| Packet {
                        line,
                        node,
                        epoch: step.directory.epoch(),
                        message: Message::Down(message),
                    });
                    self.network.extend(packets);
                }
                DirectoryAction::WriteMemory(contents) => home.memory = contents,
            }
        }
    }

    /// Performs a store with the number that the caller has chosen. Only for real contents.
    pub(super) fn store(
        &mut self,
        rules: &Rules,
        node: NodeId,
        line: usize,
        number: u64,
    ) -> Result<(), Violation> {
        self.stores = number - 1;
        self.access(rules, node, line, Access::Store)
    }
}
