"""Accountants of privacy: epsilon of a mechanism, and attack risk. No module here imports torch.

* `records`: the mechanism of a step, settings of a described training, results of accountants.
* `bounds`: upper bounds on epsilon of one training, of several, and of the best of several.
* `pld`, `rdp`, `gaussian`: privacy loss distributions, Renyi DP, and closed forms of the Gaussian mechanism;
  the last has central limit theorems of papers, too, which are no bounds.
* `allocation`: privacy loss distributions of random allocation (balls and bins).
* `opacus`: epsilons of Opacus, a second library.
* `laplace`: Laplace noise on data that are released once.
* `worst_instance`: lower bound on epsilon.
* `attack_risk`: an attacker's chance of success, and mu of Gaussian DP.
* `calibration`: noise for a target epsilon.
"""
