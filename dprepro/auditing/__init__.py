"""Lower bounds on epsilon, and mistakes of a private training.

* `epsilon_bounds`: bounds from an attacker's scores.
* `attacks`, `floating_point`, `pairs`: scores of canaries from all steps' releases; numbers that noise can't
  make; a step's sums and noise on neighbouring data sets.
* `canaries`: canaries among a training's own examples, and the bounds that a perfect attacker shows.
* `training`, `models`: attacks on a training loop, and on a training of one's own network.
* `mistakes`: tests for the classic mistakes of DP-SGD.
* `replay`: one step on neighbouring batches.
"""

from dprepro.auditing.epsilon_bounds import AuditedEpsilon, audit

__all__ = ["AuditedEpsilon", "audit"]
