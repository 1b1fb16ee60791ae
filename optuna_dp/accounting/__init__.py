"""Accounting: from what one run costs to what a selection among many runs guarantees.

Notation, here and in the modules below (paper symbol -> name in the code):

=====================  ===========================================================================
symbol                 name
=====================  ===========================================================================
D, D'                  neighbouring data sets; "forward" compares a larger D with D', one record
                       less ("remove" in dp-accounting), "reverse" the other way round
P, P'                  laws of one run's output on D and on D'
(O, O')                ``DominatingPair``: discrete, hockey sticks at least those of (P, P')
l = log(O/O')          ``losses``; O-mass of an atom ``mass``, its O'-mass ``mass_prime``
O[l = inf]             ``infinite_mass``; O'[l = -inf] is ``null_mass``
H_t(P || P')           ``delta(epsilon)`` with t = e^epsilon, the hockey stick or privacy profile
G(p)                   ``attacks.data_attack``: sup{ O'(E) : O(E) <= p }
a, eps(a)              ``orders``, ``rdp``: Renyi divergence of order a, sup over both directions
T, m                   ``trials`` (the law of the number of runs), ``trials.mean``
phi(s) = E[s^T]        ``trials.pgf``; its derivative ``trials.pgf_derivative``
eta, gamma             ``shape``, ``gamma`` of the truncated negative binomial law
c, C                   ``density_bounds``: every run's density relative to the prior lies between
lo(p), hi(x)           bounds of a run's mass above p given that the prior's is p (or x)
Phi(t)                 the convex function whose mean under O bounds the selection's delta
=====================  ===========================================================================

Modules: ``events`` (what one run costs), ``kinds`` (those that dp-accounting does not have, and
``kinds.foreign`` for those that it has) and ``event_json``; ``supported_events`` (what can be
judged); ``dominating_pairs``; ``run_profile`` (one run's pair, with ``plds`` below it) and
``run_rdp`` (its Renyi-DP curve, with ``rdp_curves`` below it); ``epsilon_methods`` and
``guarantee``. The bounds of selections stand in ``selection.bounds``. ``discretisation``
and ``reading_points`` choose grids, of which any is sound.
"""
