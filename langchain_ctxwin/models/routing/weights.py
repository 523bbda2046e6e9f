"""Generated weights of the routing quality score: benchmarks/fit_routing.py writes them.

Made from public outcomes: the evaluation answers of lm-sys/RouteLLM (MMLU, GSM8K) and the nine-model set of
ulab-uiuc/LLMRouter. The weights belong to words of a request, not to models.
"""

# ruff: noqa: E501  # one line of columns, one per phrase

from __future__ import annotations

# fmt: off
PART_WEIGHTS: dict[str, float] = {
    "length": 0.1,
    "constraints": 0.1,
    "code": 0.85,
    "math": 0.828,
    "steps": 0.392,
    "tools": 0.3,
    "languages": 0.3,
}
"""How much each part of the complexity says about failing, from 0 to 1."""

LEVEL_BOUNDS: dict[str, tuple[float, float]] = {
    "code": (0.699, 0.822),
    "math": (0.555, 0.644),
    "choice": (0.091, 0.219),
    "text": (0.101, 0.311),
    "tools": (0.101, 0.281),
}
"""Scores from which a request of a kind is of medium difficulty, and hard: a third of its texts is below, one above."""

TEXT_WEIGHTS = """\
{"version": 1, "columns": ["(cheap)", "(dear)"], "base": [0.329, 0.773], "usual": {"choice/easy": [1.093, 1.693], "choice/hard": [0.403, 1.212], "choice/medium": [0.835, 1.51], "code/easy": [-0.005, 0.868], "code/hard": [-0.496, 0.28], "code/medium": [-0.463, 0.435], "math/easy": [0.102, 0.656], "math/hard": [-0.381, 0.318], "math/medium": [0.09, 0.772], "text/easy": [0.36, 0.701], "text/hard": [0.262, 1.161], "text/medium": [0.192, 1.027]}}
00	5.747	-0.42	-1.063
000	4.297	-0.865	-0.398
000 the	5.758	-0.546	-0.145
000 to	6.892	-0.017	0.221
10	3.777	-0.95	-2.009
10 00	7.659	0.053	-0.279
10 000	5.976	-0.202	0.135
10 10	7.18	0.066	-0.592
10 10 10	7.922	0.207	-0.215
10 11	7.739	0.057	-0.352
11	5.479	-0.119	-0.606
12	4.615	-0.989	-0.605
14	5.533	-0.47	-0.084
15	4.699	-0.459	-1.12
15 minutes	7.516	0.228	-0.001
150	6.005	-0.433	-0.593
16	5.454	-0.551	-0.08
18	5.524	-0.362	-0.417
19	6.235	-0.72	-0.561
1h	6.966	-0.621	-1.069
20 and	8.027	0.145	-0.143
200	5.551	-0.401	-0.772
2005	6.928	-0.066	-0.51
2006	6.823	-0.533	-0.153
20th	7.452	-0.069	0.214
24	5.619	-0.36	-0.244
25	4.844	-0.197	-0.44
30	4.547	-0.061	-0.567
30 days	6.728	-0.219	-0.542
300	5.962	-0.0	-0.123
32	6.254	-0.143	0.037
35	6.353	0.163	-0.29
36	6.418	-0.118	-0.407
37	6.312	0.026	0.306
40	5.004	-0.182	-0.534
400	6.113	-0.057	0.184
42	6.669	-0.43	0.069
45	6.199	-0.454	0.045
50	4.611	-0.58	0.072
50 answer	8.278	-0.228	0.126
58	7.826	0.072	-0.314
600	6.332	0.348	-0.175
700	7.585	-0.206	0.142
75	5.907	-0.527	0.038
80	5.524	-0.355	-0.26
90	5.88	-0.201	-0.385
96	7.452	0.112	-0.251
ability	5.506	0.412	0.248
about	3.584	0.201	0.098
about the	4.604	-0.022	-0.187
above	4.366	-0.055	0.344
above answer	4.911	0.216	0.387
access	6.02	0.674	0.303
according	4.541	0.328	0.103
according to	4.541	0.328	0.103
accurate	5.842	-0.048	-0.34
accurately	6.535	-0.227	0.023
acid	5.609	-0.309	-0.722
acre	6.113	-0.241	0.171
acres	6.728	-0.04	0.217
across	5.404	0.201	0.008
action	4.069	0.041	0.422
actions	5.88	0.488	0.134
active	6.05	0.078	0.434
activity	5.59	0.303	-0.126
actor	6.698	-0.244	-0.482
acute	6.928	0.422	0.154
add	6.511	0.042	-0.184
address	6.035	-0.316	0.136
admissible as	6.312	0.257	0.008
advertising	6.292	0.434	0.716
affect	6.13	0.414	0.104
affected	6.396	0.155	-0.164
african	6.199	-0.189	0.022
after	3.28	-0.419	-0.622
after being	6.823	-0.427	-0.002
afternoon	5.88	-0.286	-0.116
again	6.065	0.138	-0.167
against	3.685	-0.494	-0.325
against the	4.16	-0.444	-0.35
age	5.004	0.104	0.454
ago	5.261	0.15	0.199
agreed to	5.629	-0.145	-0.398
agreement	5.015	0.148	0.343
agrees	6.966	-0.178	0.15
air	5.66	-0.191	0.044
al	6.857	-0.037	0.237
all	3.04	-0.116	0.205
all of	4.358	0.547	0.333
almost	6.292	-0.106	0.051
also	4.165	0.132	0.787
although	5.071	-0.515	-0.4
always	4.858	0.626	0.473
america	6.235	0.201	-0.105
amount	4.782	0.306	0.187
an	2.343	0.248	0.114
an animal	7.452	0.484	0.229
an electron	7.659	-0.09	-0.377
an expert	6.759	0.104	-0.156
an important	6.44	0.189	-0.038
analysis	5.629	0.82	0.589
and	1.666	-0.727	-0.252
and an	6.097	0.185	-0.066
and are	5.619	-1.01	-1.158
and blood pressure	5.793	0.061	0.236
and demanded	6.857	0.263	-0.099
and each	6.332	0.395	-0.018
and from	7.133	0.147	-0.118
and half	6.966	-0.032	0.241
and has	5.736	0.07	0.217
and in	5.66	-0.291	0.015
and is	5.094	-0.568	-0.322
and it	5.758	-0.158	0.144
and low	7.739	-0.135	0.174
and more	6.273	-0.166	0.139
and she	5.976	-0.13	0.228
and that	5.004	-0.368	-0.064
and the	3.24	0.05	0.128
and therefore	6.05	0.079	0.305
and two	6.463	-0.35	0.023
angular	7.516	-0.19	-0.555
another	4.361	0.621	0.521
answer	1.401	5.499	6.247
answer in	5.57	0.392	0.519
any	3.699	-0.245	-0.197
any time	7.229	-0.238	0.091
anything	5.894	-0.154	0.189
appeal	5.488	0.239	0.636
appears	5.99	-0.264	-0.05
appears to	7.334	-0.341	0.072
apples	6.254	0.063	-0.132
applicable	6.065	-0.074	-0.276
applied	5.948	0.401	0.007
applied to	6.728	0.296	0.084
appointed	6.641	-0.335	0.011
approaches	6.928	0.133	-0.19
approved	6.823	-0.144	0.195
approximately	6.13	-0.321	-0.573
aq	7.516	-0.343	0.231
are	2.434	0.035	-0.115
are going	7.452	-0.136	0.164
are on	7.18	-0.52	-0.207
are there	6.181	0.196	-0.069
area of	6.13	-0.286	-0.567
areas	6.217	-0.281	-0.005
argon	8.027	-0.223	0.103
argument	4.982	0.031	0.08
argument against	7.585	-0.114	0.188
around the	5.934	-0.084	0.217
array	6.374	-0.109	0.022
arthur	7.585	-0.028	-0.283
article	6.13	-0.038	0.269
as	2.469	0.16	0.4
as many	5.471	0.449	0.797
as much	6.081	0.008	0.395
as result of	5.92	-0.155	0.065
as well as	6.292	0.086	-0.156
aspects	6.857	0.131	-0.12
assessment	6.857	0.248	0.002
assignment	6.728	-0.326	-0.052
associated	6.097	-0.03	-0.377
associated with	6.147	0.031	-0.314
assumed	6.374	-0.232	-0.015
at	2.699	-0.619	-0.554
at rate	7.391	-0.112	0.258
at rate of	7.516	-0.054	0.24
at the	3.587	-0.172	0.112
at the end	6.254	-0.093	0.194
at the time	5.445	0.342	0.035
at trial	5.02	-0.095	-0.274
at trial the	5.364	-0.114	-0.435
atm	8.027	-0.105	-0.492
atmosphere	6.511	0.65	0.282
atom	6.613	-0.517	-0.089
atoms	6.641	-0.227	0.001
attack	5.948	0.137	-0.018
attention	5.948	-0.058	0.122
author	6.199	-0.172	0.167
authority	5.702	0.447	0.24
average	5.629	-0.6	0.11
aware	6.13	0.038	0.19
away	5.071	-0.099	0.027
babies	7.516	-0.276	0.228
back to	6.13	-0.097	-0.38
bag	6.312	0.047	0.321
band	6.966	0.131	-0.621
bank	5.724	-0.084	-0.658
bar	6.097	-0.256	-0.051
base	5.907	-0.181	0.114
basketball	6.418	0.083	0.319
be	2.402	-0.56	-0.5
be able	5.92	-0.16	0.154
be able to	5.92	-0.16	0.154
be determined	7.334	0.137	-0.235
be found	5.67	-0.045	-0.271
be made	6.487	0.105	-0.177
be the	5.254	-0.834	-0.744
be used for	6.966	-0.21	0.008
because	2.869	0.333	0.535
because he	5.143	0.151	0.02
because it is	5.488	0.196	0.008
because of	4.565	0.65	0.369
because of the	5.88	0.247	-0.216
because the	3.468	-0.458	-0.406
because there	5.702	-0.24	0.207
because they	5.868	0.236	0.013
beef	7.585	-0.362	-0.054
been	3.707	0.65	-0.088
before	4.108	-0.386	-0.299
before the	5.112	-0.016	0.071
before they	7.391	0.118	-0.124
beginning	6.235	-0.058	0.341
being	4.292	-0.221	0.079
believes	6.374	0.14	-0.092
below	5.372	-0.47	-0.279
benefit	6.164	0.382	0.096
best	3.804	0.282	0.33
best describes the	6.254	0.092	0.341
better	5.396	-0.432	-0.24
between	3.889	-0.475	0.408
between the	4.863	0.063	0.391
big	5.92	0.243	0.356
bigger	7.133	-0.444	0.111
bigger than	7.826	-0.41	0.055
billion	7.334	0.011	-0.25
bills	6.966	-0.156	0.12
binary	6.928	-0.204	0.112
binding	6.641	0.032	-0.215
bit	7.391	-0.137	0.231
black	6.005	0.567	0.364
boat	6.857	0.282	-0.001
bonds	6.928	-0.041	0.334
book	5.66	-0.124	0.152
both	3.998	-0.43	-0.004
both and	6.641	0.136	0.339
bottles	7.452	-0.271	0.099
bottles of	7.739	-0.297	0.074
bought	5.533	0.293	0.515
bowl	7.334	0.072	-0.367
box	6.097	0.076	-0.377
boy	5.894	0.187	0.035
brain	6.698	0.087	0.331
branch	7.005	-0.094	0.267
breach	5.497	0.369	0.017
breach of	5.551	0.326	-0.021
brings	5.533	-0.05	0.065
broad	7.005	-0.038	0.152
bromine	7.739	-0.177	-0.462
brought	4.687	0.344	0.473
brought to	5.894	0.097	0.319
brought to the	6.081	0.121	0.33
buffer	7.18	0.607	0.297
building	5.137	0.045	0.24
building the	6.587	0.187	-0.099
burden	6.511	0.018	-0.259
bus	7.005	-0.206	0.071
business	5.077	0.815	0.438
but	3.275	-0.812	-0.175
buy	5.187	-0.215	0.348
buyer	5.793	-0.127	0.006
buying	6.759	0.187	-0.15
buys	6.292	0.017	0.355
by	2.459	0.362	0.383
by an	5.92	0.223	-0.162
by one	7.452	-0.422	-0.112
by the	3.417	0.081	0.286
calculate	5.533	-0.287	-0.572
calculate the	5.67	-0.246	-0.421
came	5.275	-0.068	-0.681
can	3.238	0.325	0.334
can be	4.355	-0.013	-0.082
can help	7.739	-0.186	0.057
can you	7.046	-0.341	-0.064
candy	7.659	-0.046	0.249
cannot	4.723	-0.102	0.438
cannot be	5.471	0.031	0.398
captured	7.516	0.05	-0.202
car	4.63	0.106	-0.277
carbon	6.13	-0.31	-0.435
card	6.79	0.22	0.004
carried	6.217	0.165	-0.217
carried out	6.966	0.312	-0.069
carry	6.217	-0.086	0.201
cars	6.396	0.415	0.096
case	4.76	0.198	0.354
cases	6.05	0.462	0.243
caught	6.966	-0.032	0.193
cause	4.687	0.295	0.451
caused by	6.097	0.292	0.06
cells	6.035	0.255	-0.218
cents	7.334	0.087	-0.329
certain	5.118	0.204	-0.09
change	4.921	0.011	0.326
change the	6.759	-0.494	-0.155
changes	5.67	0.605	0.366
changing	6.292	0.148	-0.042
character	5.66	0.146	-0.039
characteristics	5.312	0.309	-0.028
charges	6.065	-0.043	0.084
check	5.702	0.257	0.451
cheese	6.669	0.152	-0.11
chemistry	7.659	-0.471	-0.187
chicken	6.892	-0.048	0.388
child	5.248	0.688	0.593
children	4.951	0.524	0.455
china	5.855	0.515	0.632
choice	6.535	-0.213	0.115
choose	6.005	-0.64	-0.397
choosing	7.585	-0.214	0.212
circle	6.857	-0.478	-0.901
circuit	7.089	0.006	0.245
circular	6.928	0.149	-0.259
city	4.813	-0.406	-0.2
claim	4.735	0.089	-0.167
claimed	5.894	0.138	-0.187
claiming	5.805	0.309	0.095
class	5.515	0.479	0.957
classification	7.229	-0.277	-0.01
classifier	7.826	-0.217	0.037
clause of	6.254	-0.11	0.104
clause of the	6.353	-0.128	0.118
clerk	6.966	-0.299	-0.618
clients	6.418	-0.002	-0.244
closed	6.641	-0.313	0.167
coefficients	7.334	-0.331	-0.6
color	5.855	0.352	0.126
colors	6.857	-0.035	0.203
come	5.207	-0.106	0.072
commission	6.641	0.211	-0.123
commitment	7.659	-0.215	0.115
committed	5.99	0.398	0.11
committing	7.452	-0.294	0.019
common	4.863	-0.273	0.148
commonly	6.966	0.571	0.354
community	5.66	0.15	-0.019
company	4.615	0.104	0.431
company for	7.089	-0.251	-0.027
comparison	6.79	-0.109	0.134
competition	6.587	0.197	-0.057
competitive	7.28	-0.262	0.01
complaint	6.292	0.148	-0.205
completely	6.217	0.205	-0.002
compound	6.641	-0.518	-0.947
compounds	6.587	-0.945	-0.677
computer	5.747	0.412	0.698
concentration	5.907	-0.02	-0.244
concerns	6.823	-0.074	0.134
concert	7.005	-0.156	0.031
conclusion	6.065	-0.242	0.171
conditional	6.698	0.328	-0.035
conditions	5.462	-0.01	0.093
confirmed	7.452	-0.311	0.021
congress	5.99	0.157	0.422
consequence	6.235	-0.514	-0.055
consideration	5.629	0.301	-0.125
considerations	6.966	0.274	-0.174
constant	5.758	0.095	-0.332
constitutional	5.22	0.088	-0.27
constitutional because	6.79	0.003	-0.27
constitutionality	6.164	0.074	-0.171
constitutionality of	6.181	0.106	-0.183
constitutionality of the	6.44	0.097	-0.156
contact	5.934	0.151	-0.26
contain	6.035	0.354	0.016
containing	6.05	-0.108	-0.403
contract	4.558	0.137	-0.102
control	5.187	-0.18	-0.458
conversation	6.561	-0.254	0.005
conveyance	6.164	0.091	-0.176
convicted	5.724	0.063	0.283
cook	7.585	0.074	-0.3
cookies	7.18	0.432	0.129
corporation	6.698	-0.198	0.044
cost	4.972	0.144	0.497
could	4.102	-0.178	-0.075
could be	5.66	-0.169	0.159
could have	6.561	0.012	0.264
counsel	6.273	0.118	-0.141
counseling	7.585	-0.134	0.109
countries	5.793	-0.014	0.306
country	5.149	-0.738	-0.925
course of	6.199	0.143	-0.068
court	4.057	0.114	0.621
court to	6.966	-0.107	0.173
court will	6.164	-0.298	-0.125
cousin	7.046	-0.104	0.202
covered	6.728	-0.211	0.107
create	5.976	-0.236	0.09
created	5.471	0.375	0.106
cross	5.639	-0.104	-0.373
current	5.561	0.19	-0.116
currently	6.097	-0.054	0.175
customer	5.907	0.346	0.164
customers and	7.826	-0.257	0.059
cut	5.948	-0.068	0.032
cx	8.278	0.077	-0.446
damage	5.66	0.35	0.022
dark	6.613	0.159	-0.083
data	5.187	0.341	0.31
date	5.67	-0.092	0.069
day and	6.44	-0.196	0.006
day the	5.57	-0.108	-0.381
days	4.607	-0.453	-0.285
days week	7.334	-0.032	0.226
dc	7.826	-0.043	0.339
dead	6.511	-0.278	-0.056
deal	5.92	-0.153	0.087
deal with	6.823	-0.142	0.143
death	5.042	0.073	-0.091
decided	4.858	-0.523	-0.097
decided to	5.112	-0.391	-0.067
decides	6.374	-0.097	0.131
decision	5.65	0.171	0.443
decrease	6.44	0.061	0.311
def	5.818	-0.266	0.011
defendant has	7.005	0.031	-0.26
defendant is	6.081	-0.333	-0.614
defense	5.083	0.163	-0.038
degree	5.77	-0.002	0.257
delivery	5.934	0.067	-0.218
deposition	7.452	-0.046	0.364
derived	7.334	-0.164	0.173
derived from	7.739	-0.21	0.13
describes the	5.67	0.406	0.565
desert	7.452	0.143	-0.176
determination	7.046	-0.23	0.058
determine	5.155	-0.314	-0.585
determine whether	6.199	-0.298	-0.594
determine whether the	6.561	-0.429	-0.743
developer	6.892	-0.332	-0.051
devices	7.046	0.319	-0.093
diagnosis	5.962	0.21	0.415
diaphragm	8.278	-0.117	0.194
did	3.467	-0.062	-0.117
did not	4.156	0.09	-0.153
did not have	6.273	0.112	-0.154
did the	5.65	0.089	-0.256
did they	7.133	0.062	0.336
difference	5.77	-0.23	0.111
difference between	6.353	0.036	0.316
different	4.517	-0.235	-0.183
differential	7.452	-0.449	0.024
digital	6.966	0.38	0.062
dinner	6.312	-0.129	0.183
direct	5.619	0.584	-0.004
directed	6.511	0.13	-0.08
direction	6.396	-0.245	-0.596
directly	5.124	-0.001	-0.491
discuss the	7.28	0.081	-0.246
disk	7.922	-0.292	0.035
disorder	6.511	-0.103	0.223
disorder answer	7.826	-0.315	0.057
dissolved	7.516	0.044	-0.339
dissolved in	7.659	-0.065	-0.367
distance	5.934	-0.254	-0.691
distinction	7.922	-0.434	-0.039
division	6.669	0.045	0.381
do	3.786	0.907	0.088
do not	5.094	0.249	0.347
do so	6.254	0.185	-0.259
do the	6.396	-0.163	0.145
do what	7.391	0.156	-0.256
does not	4.243	0.597	0.338
door	5.639	-0.256	-0.012
down	4.667	-0.311	-0.079
down the	5.92	-0.498	-0.24
drink	5.88	-0.177	0.079
drive	6.005	-0.218	-0.481
driver	5.609	0.099	-0.541
driver was	7.046	0.07	-0.209
driving	5.542	0.239	0.004
due	4.66	0.229	0.468
due process	6.113	0.048	0.231
during	3.886	0.164	0.704
during the	4.484	-0.027	0.045
each	3.478	0.066	0.542
each and	6.641	-0.348	0.19
each class	8.432	-0.306	0.103
each of	5.692	-0.039	0.145
each year	7.28	0.128	-0.117
early	5.66	-0.26	-0.063
earth	5.334	0.404	0.657
easement	6.587	-0.375	0.012
eat	5.92	0.083	-0.195
eating	5.855	-0.125	-0.339
economic	5.268	0.63	0.033
education	6.081	0.301	-0.177
effect	4.887	0.308	0.162
effect of	6.332	-0.177	0.183
effective	5.65	-0.016	-0.245
either	5.059	-0.793	-0.544
electron	6.487	-0.351	-0.012
electronic	7.18	0.283	0.012
element	5.83	-0.327	0.039
element in	8.432	-0.392	0.018
element of	6.892	-0.067	-0.25
elements	5.629	0.146	0.501
elements that	7.922	-0.119	0.193
emergency	5.692	0.228	0.491
emotion	8.027	-0.071	0.216
employed	6.164	-0.226	0.105
employee	5.805	-0.011	-0.241
employees	6.164	0.035	-0.166
employer	6.759	0.098	-0.152
employment	6.147	0.148	-0.302
encourage	6.857	0.005	-0.269
end of	5.619	-0.062	0.137
energy	5.054	0.049	-0.266
energy of	6.966	-0.124	-0.427
enforcement	6.613	-0.379	0.145
engine	7.28	0.348	0.068
ensure	6.418	0.07	0.405
enter	5.66	-0.311	-0.475
entered	4.972	0.065	0.215
entered the	6.005	-0.138	-0.032
entitled	6.035	-0.253	-0.051
entitled to	6.113	-0.202	-0.022
environmental	6.02	0.341	0.46
equal to	6.164	-0.473	-0.009
equally	6.418	-0.098	0.267
equilibrium	6.613	-0.464	-0.89
errors	7.005	0.175	0.286
estate	5.428	-0.599	-0.185
ethical	6.181	0.455	0.131
evaluation	6.147	0.546	0.168
even	4.652	-0.145	0.027
everything	6.181	0.004	0.22
evidence of	5.702	0.109	-0.191
example	5.124	0.047	0.352
except	5.524	0.277	-0.013
exception	5.88	-0.207	0.12
excluded	6.966	-0.01	-0.331
executed	6.02	-0.345	-0.595
exercise	5.542	0.343	-0.107
exists	6.273	0.261	0.084
expansion of	7.516	-0.111	0.214
experience	5.92	-0.02	-0.226
experienced	6.561	0.148	-0.123
experiment	6.463	-0.539	-0.016
express	5.99	-0.562	-0.023
express your	7.133	-0.501	-0.284
express your answer	7.133	-0.501	-0.284
extended	6.892	-0.203	0.108
extension	6.966	-0.125	0.242
extent	6.463	-0.236	0.188
extent of	7.334	-0.285	0.103
fact	5.077	0.355	0.145
factor	6.097	0.103	-0.086
failed	5.404	0.349	-0.231
failed to	5.599	0.284	-0.256
failure	5.692	0.469	0.156
fall	5.948	-0.21	0.077
fallacies	6.759	0.312	0.027
fallacy	5.681	0.367	0.807
fallacy of	6.181	0.294	0.482
false	4.648	-0.613	-0.741
false false	5.58	-0.395	-0.19
false false true	5.58	-0.395	-0.19
false true	5.58	-0.395	-0.19
false true answer	5.58	-0.233	-0.112
false true false	5.58	-0.233	-0.112
family	4.946	-0.399	0.058
far	5.692	-0.013	0.215
farm	5.948	0.116	-0.264
father	5.65	-0.526	-0.077
favorite	5.976	-0.064	-0.27
federal	4.946	0.108	0.335
fee	5.42	-0.529	-0.098
fee simple	5.976	-0.18	0.083
feet	5.561	-0.324	0.232
few	5.194	-0.063	0.216
filed motion	6.44	0.114	-0.105
filed motion to	6.698	0.164	-0.085
find	4.218	-1.224	-1.406
first	3.611	-0.129	0.331
first day	6.728	-0.203	0.057
five	5.065	-0.465	-0.076
fix	7.516	-0.09	0.209
flight	7.046	-0.004	0.253
fluid	6.613	0.287	0.572
focus	6.374	0.238	0.465
focus on	7.046	-0.084	0.269
focused	7.133	-0.176	0.207
following	2.435	0.035	-0.127
following are	6.641	0.193	0.005
following best	5.724	0.551	0.285
following fallacies	6.79	0.265	-0.006
following is	3.777	0.55	0.842
following is an	6.966	0.03	0.291
following is not	5.66	0.392	0.049
following is the	4.572	0.416	0.693
following is true	5.92	-0.012	-0.11
following statements	5.241	0.014	-0.332
following statements is	6.02	-0.102	-0.334
following the	5.894	0.205	-0.246
food	5.297	0.541	0.356
for	2.067	-0.166	-0.73
for 20	7.28	0.098	-0.168
for 40	7.739	0.085	-0.256
for an	5.462	0.014	0.191
for hours	6.823	0.583	0.342
for the	3.183	-0.24	-0.749
for the first	6.44	0.342	0.04
for this	6.217	-0.151	0.224
for which	5.88	-0.454	-0.148
for which of	6.966	-0.108	0.157
force	5.349	-0.201	-0.507
forest	6.613	0.212	-0.027
form	4.882	-0.276	-0.471
formation of	6.857	-0.249	0.017
found	4.245	-0.016	-0.466
found guilty	6.081	-0.148	-0.444
found guilty of	6.759	-0.073	-0.39
found in	6.292	0.309	0.07
four	4.748	-0.176	0.073
fourteenth	6.113	-0.24	0.097
fourteenth amendment	6.273	-0.218	0.05
free	5.396	0.341	0.013
french	6.418	0.343	0.095
friday	6.535	-0.162	0.119
friend	5.283	-0.802	-0.282
friends	5.639	0.065	0.502
from	2.611	0.202	0.175
from his	5.77	-0.011	0.144
from what	7.585	0.093	-0.169
front	5.57	-0.187	0.038
fruit	5.962	0.125	0.263
full	5.254	0.166	0.299
function	4.279	0.029	0.494
function that	7.18	-0.188	0.173
function to	4.683	0.012	0.195
functions	6.561	-0.104	0.059
further	5.372	-0.007	0.154
fx	8.432	-0.39	0.169
gender	6.463	0.024	0.469
generalization	7.229	-0.337	0.227
generally	6.05	0.366	0.103
genetic	6.463	0.344	0.091
get	4.524	0.279	0.608
girl	5.907	-0.439	-0.089
girlfriend	6.892	0.005	-0.482
girls	6.641	-0.023	0.225
give	4.887	-0.22	-0.063
given	4.084	-1.135	-1.213
given string	6.79	-0.108	0.126
go	4.911	-0.029	0.283
goals	6.613	0.558	0.281
going to	5.713	-0.062	0.164
good	4.572	-0.219	-0.008
government	5.083	0.366	0.315
grams	7.28	0.016	-0.398
grant	5.782	-0.013	0.199
granted	5.65	-0.393	-0.127
greater	5.515	-0.085	0.103
ground	5.639	-0.562	-0.282
group	4.868	-0.259	-0.085
group of	6.035	0.185	0.018
groups	5.404	0.117	-0.063
groups of	6.79	0.083	-0.176
grown	7.28	-0.091	0.165
growth	6.065	0.381	0.012
guilty	5.357	-0.414	-0.921
guilty of	5.92	-0.434	-0.714
h2o	7.229	-1.025	-0.485
had an	6.641	-0.091	-0.341
had no	5.805	-0.111	0.078
had the	6.235	-0.307	-0.07
half	4.835	-0.336	0.142
half of	5.948	0.025	0.182
half of the	6.418	-0.094	0.141
hand	5.713	0.138	0.273
happen	6.857	0.342	-0.145
harmful	7.133	-0.095	0.171
has	2.755	-0.125	0.09
has the	5.319	-0.172	-0.071
have	2.821	0.158	0.511
have been	4.993	0.71	0.004
have left	6.79	0.185	0.395
have the	5.194	-0.526	-0.133
have the same	6.966	-0.161	0.181
having	4.901	0.442	0.242
he	2.898	1.097	0.829
he gets	7.334	0.209	-0.047
he has	5.1	0.252	0.479
he is	5.372	0.24	-0.027
he was	4.349	0.033	0.233
he would	5.533	-0.063	-0.32
head	5.437	-0.138	0.047
hearsay	5.782	-0.015	0.248
heated	6.966	-0.37	-0.699
heirs	6.292	-0.477	-0.216
held	5.334	-0.007	-0.266
help	4.956	-0.255	0.096
helps	6.892	0.131	0.473
her	3.392	0.612	0.643
her husband	6.418	-0.114	0.096
her mother	6.79	-0.291	-0.034
her to	6.217	0.179	-0.032
hereby	6.641	-0.025	-0.305
high	4.575	0.097	0.513
high and	8.278	-0.285	0.071
high intensity	8.278	0.191	-0.138
high intensity exercise	8.278	0.191	-0.138
higher	5.724	-0.777	-0.173
highly	5.99	-0.004	-0.192
him	3.87	-0.412	-0.614
hired	5.88	-0.216	0.033
his	2.937	0.196	0.273
his friend	6.254	-0.39	-0.087
his girlfriend	7.391	-0.017	-0.338
his own	6.13	-0.185	0.013
hole	7.18	0.179	-0.121
home	4.527	0.066	0.482
horse	6.669	0.015	-0.297
hotel	6.613	-0.204	-0.012
hour	5.304	0.372	0.555
hours	4.808	0.295	0.395
house	4.447	-0.701	-0.546
houses	5.497	-0.685	-0.54
housing	7.133	-0.171	0.062
how	2.987	0.431	0.44
how many	3.652	0.051	0.503
how much	4.551	0.57	0.264
how much did	6.44	0.101	0.464
how much money	6.081	0.273	0.033
how much will	6.698	0.172	-0.074
how old	7.089	0.014	0.318
how old is	7.452	0.007	0.246
human	4.967	0.102	0.013
hydrogen	5.976	-0.794	-0.673
hz	7.739	-0.76	-1.089
ice	6.312	0.558	-0.028
idea	5.962	0.111	0.531
ideal	7.089	-0.055	-0.284
identify	5.782	-0.486	-0.839
identify the	6.164	-0.513	-0.688
identity	5.99	-0.464	-0.177
if	2.722	-0.06	0.171
if and	6.892	0.095	-0.08
if and are	8.145	0.075	-0.314
if he	5.174	0.09	0.34
if the	3.821	-0.757	-0.769
if there	6.164	0.029	0.43
if there are	6.966	-0.037	0.209
if there is	7.391	-0.055	0.277
if they	6.005	-0.196	0.045
immediate	6.254	-0.561	0.084
immediately	5.1	-0.177	-0.028
important	4.993	0.729	0.328
in addition	6.005	-0.289	-0.111
in all	6.035	0.003	0.36
in an	4.6	-0.13	0.051
in both	6.79	0.259	-0.103
in effect	6.463	-0.048	-0.353
in her	5.412	0.163	-0.187
in its	6.02	-0.499	-0.121
in one	5.934	0.393	0.134
in order	4.967	0.176	0.285
in order for	7.659	0.136	-0.169
in order to	5.137	0.115	0.371
in python	7.334	0.039	0.478
in row	5.962	-0.281	-0.518
in that	5.976	-0.383	0.082
in the	2.427	-0.411	-0.316
in the past	6.561	0.416	-0.077
in the state	6.113	-0.431	-0.115
in the united	6.396	0.074	-0.124
in their	5.275	0.19	0.03
in this	5.042	-0.484	-0.68
in what	5.842	0.43	0.673
in which	4.504	-0.655	-1.055
in which of	6.312	0.192	-0.115
inadmissible	5.619	-0.278	-0.112
inadmissible because it	6.613	-0.171	0.076
include	5.67	0.173	0.38
included	5.99	0.271	-0.054
income	6.487	-0.029	0.185
incorrect	7.334	-0.145	-0.416
increase	5.137	0.258	0.565
increase the	6.511	-0.126	0.165
increases	6.147	0.359	0.177
index	6.698	-0.316	-0.553
indicate	6.892	-0.298	-0.059
individual	5.349	0.416	0.584
infant	7.826	-0.235	0.19
information	4.111	0.727	0.519
initial	5.88	-0.073	-0.389
initially	6.463	-0.335	-0.037
injuries	5.479	-0.308	-0.155
injury	5.629	0.06	0.302
inner	7.133	0.031	0.226
instrument	5.907	-0.179	-0.145
insurance	6.332	-0.326	0.096
insurance company	7.089	-0.354	-0.051
insured	7.229	-0.115	0.135
int	7.133	-0.321	0.083
integer	6.273	-0.748	-0.532
integers	6.02	-0.626	-1.062
intended	5.609	-0.298	-0.12
intensity	7.18	0.365	-0.235
intensity exercise	8.278	0.191	-0.138
intent	5.692	-0.053	0.151
interest	4.791	-0.138	0.187
interest in	5.894	-0.0	0.292
interest in the	6.332	-0.052	0.187
interested	6.273	0.191	-0.057
interested in	6.44	0.127	-0.096
internal	5.92	0.078	0.517
internet	6.353	0.39	0.238
into	3.548	-0.104	-0.491
ionic	7.659	-0.136	0.315
irrelevant	6.487	0.114	-0.146
is	1.574	0.026	-0.193
is also	6.235	0.167	0.269
is an	4.675	0.22	0.676
is are	7.516	0.264	-0.056
is best	6.13	0.56	0.247
is brought	5.88	0.182	0.38
is brought to	6.065	0.088	0.34
is called	6.199	0.823	0.547
is common	7.334	-0.031	0.199
is correct	6.463	0.065	-0.285
is due	7.005	0.285	-0.059
is due to	7.18	0.228	-0.086
is likely	6.235	0.226	0.065
is likely to	6.374	0.283	0.099
is most likely	5.67	0.185	0.392
is necessary	6.418	-0.387	-0.121
is no	5.031	-0.108	0.11
is not	3.895	-0.02	-0.062
is not an	6.587	0.222	0.04
is now	6.273	-0.113	0.179
is present	7.391	0.29	0.064
is referred	6.396	0.642	0.296
is referred to	6.396	0.642	0.296
is subsequently	6.892	-0.125	-0.466
is the	2.948	-0.454	-0.664
is the most	4.703	0.272	0.403
is the value	7.659	-0.33	0.195
is this	7.046	0.214	-0.082
is where	7.826	0.023	-0.208
isotope	8.432	0.07	-0.381
issue	5.334	-0.149	-0.03
it can	6.217	0.284	0.074
it has	5.868	0.221	-0.099
it is not	6.254	-0.335	-0.014
it take	6.44	-0.2	-0.413
it to	5.692	0.18	-0.04
item	6.823	-0.088	0.097
its own	6.332	-0.128	0.207
jackson	7.452	-0.239	0.151
jewels	8.278	-0.285	0.08
jim	7.516	-0.077	0.194
job	5.268	0.011	0.335
john	5.758	0.52	0.973
judge	5.599	0.027	0.296
julie	8.278	-0.274	0.132
jupiter	6.966	-0.176	0.339
jury	5.437	0.057	0.362
justice	6.669	0.291	-0.25
ka	8.145	-0.032	-0.294
keep	5.488	0.342	0.108
key	6.05	0.08	0.255
kg	6.05	0.075	-0.326
kill	6.235	-0.198	0.029
killed	5.907	-0.134	0.08
king	5.842	0.529	0.806
kj	7.922	-0.136	-0.363
know	4.993	-0.073	0.27
know that	6.418	-0.283	0.022
knowledge	5.261	0.086	0.274
known	5.059	0.205	0.017
lap	7.739	-0.095	0.187
large	4.52	-0.306	0.36
later	4.425	-0.512	-0.055
law and	6.928	-0.034	0.198
laws	5.88	0.314	0.102
lead	5.868	-0.089	-0.233
leaders	6.561	0.31	0.083
learning	5.855	0.104	0.311
leather	8.432	-0.256	0.197
leave	5.702	-0.438	-0.131
leave the	6.511	-0.134	0.036
left	4.196	-0.272	-0.285
left of the	5.855	-0.457	-0.736
left the	6.05	-0.397	-0.056
legal	5.234	-0.073	0.229
legally	6.587	-0.146	0.136
legislature	6.892	0.352	0.083
lemon	7.585	0.309	-0.049
length	5.681	-0.229	-0.158
length of	6.374	0.152	0.263
less	4.765	0.136	0.465
less than	5.724	-0.369	0.136
let	5.341	-0.348	-0.888
let what	8.432	-0.181	0.227
let what is	8.432	-0.181	0.227
letter	5.454	-0.234	-0.119
level	5.304	0.159	0.485
levels	5.66	-0.221	-0.019
liability	5.713	-0.412	-0.206
life	4.664	0.417	-0.074
light	5.071	-0.595	-0.073
like to	6.669	0.164	-0.084
likely	3.536	1.046	0.576
likely be	5.88	0.281	0.143
likely to	4.687	0.413	0.262
likes	6.02	-0.21	-0.485
limited	5.907	0.355	0.174
line	5.412	-0.61	-0.34
linear	6.332	0.242	-0.003
liquid	6.728	0.237	0.503
list	5.283	0.224	0.715
list of	6.005	-0.112	0.041
live	5.054	-0.476	-0.34
lives	5.168	-0.602	-0.876
living	5.13	0.108	-0.177
load	6.928	-0.1	0.19
local	5.059	0.176	-0.247
located in	6.081	-0.23	-0.066
location	6.332	0.215	0.007
log	7.334	-0.119	0.019
long	4.52	-0.134	-0.094
looks	7.18	-0.083	0.151
loss	5.312	-0.081	0.181
loss of	6.113	-0.334	0.106
losses	7.391	-0.123	0.184
lost	5.542	-0.246	-0.026
lot	5.372	-0.061	0.05
love	5.99	-0.174	0.132
loved	7.229	0.244	-0.142
loves	7.391	-0.216	0.22
low	5.349	0.428	0.994
lower	5.372	-0.562	0.143
lying	6.511	-0.434	0.013
made	4.063	0.946	0.492
magnetic	6.353	-0.241	-0.42
magnetic field	6.928	-0.183	-0.619
maintain	6.312	0.062	0.263
maintained	6.759	-0.113	0.131
major	5.533	-0.05	0.229
making	4.916	0.29	0.065
man	4.133	0.217	0.219
man and	6.065	0.011	0.196
management	5.92	0.843	0.202
many	3.297	0.14	0.81
many times	7.089	-0.396	-0.188
marketing	5.868	1.162	0.531
married	6.181	0.097	-0.149
mars	7.005	0.564	0.242
mass	5.388	-0.046	-0.347
mass of	6.728	-0.189	-0.445
material	5.758	0.484	0.109
max	7.739	-0.016	0.264
maxillary	7.739	0.497	0.106
maximum	5.818	-0.364	-0.532
may be	4.998	0.069	0.286
meals	7.739	-0.284	-0.02
measure	6.081	0.676	0.232
measurement	7.005	0.067	0.252
measurements	7.229	-0.274	0.002
mechanism	6.892	-0.073	0.279
media	6.199	0.501	0.065
member	5.99	-0.175	0.103
membrane	7.046	-0.093	0.098
men	5.168	0.102	0.21
message	6.113	0.225	0.578
messages	6.966	0.358	0.037
meters	7.18	-0.073	-0.393
mhz	7.585	-0.523	-0.885
middle	5.99	0.569	0.297
might be	6.418	-0.19	0.097
miles	6.02	0.101	0.519
miles per	7.391	0.061	0.317
million	6.332	-0.131	0.188
min	5.59	0.156	0.425
min and	5.758	0.181	0.346
min and blood	5.868	0.072	0.269
min respirations	6.217	-0.088	0.204
mineral	7.516	0.203	-0.096
minutes of	7.659	0.226	-0.155
missing	7.089	-0.113	0.171
mixture	6.759	-0.435	-0.678
ml	6.892	-0.414	-0.95
ml of	7.585	-0.336	-0.593
mm	5.515	0.025	-0.238
mode	7.826	-0.636	0.083
model	5.22	0.16	-0.234
moderate	6.669	-0.156	0.236
mol	7.005	-0.502	-0.92
molecular	6.823	-0.064	-0.604
monday	6.561	-0.017	0.193
money does	7.089	0.27	-0.097
month	5.059	0.7	0.15
month the	6.928	0.253	-0.043
months	4.707	-0.163	-0.033
months of	7.391	-0.12	0.196
more	3.478	0.48	0.91
more likely	6.613	0.038	-0.36
more than	4.921	-0.087	0.142
most	3.104	0.489	0.78
most accurate	6.353	-0.113	-0.303
most likely to	5.782	-0.136	0.114
mostly	6.966	0.421	0.111
mother	5.241	-0.436	-0.113
motion	5.248	0.111	-0.314
motion to	5.976	0.28	-0.134
motion to dismiss	6.759	0.306	0.061
moved	5.515	-0.036	-0.198
moves	6.613	-0.441	-0.631
moving	6.312	-0.407	-0.11
much	4.036	0.952	0.609
much did	6.44	0.101	0.464
much money	6.081	0.278	0.05
much money does	7.089	0.27	-0.097
much will	6.698	0.172	-0.074
multiple	5.88	-0.287	0.269
murder	5.357	-0.473	-0.26
muscle	5.934	0.182	0.629
muscles	6.728	-0.279	0.271
muscles of	8.145	-0.293	0.146
must	4.361	0.673	0.433
must be	5.143	0.554	0.339
my	4.926	-0.493	-0.077
name	4.916	0.255	0.051
name of	6.065	-0.03	-0.187
names	6.44	0.141	0.433
nations	6.535	0.153	0.347
natural	5.66	-0.028	0.458
nature	5.692	0.027	0.345
necessary	5.227	-0.329	0.071
necessary to	6.374	-0.185	0.042
need	4.765	0.18	0.313
need to	5.462	-0.282	-0.1
negligence	5.713	0.283	-0.074
nerve	6.587	-0.13	0.087
nerves	7.739	-0.019	0.388
network	6.396	0.258	-0.052
neutral	7.046	-0.244	0.057
never	4.931	-0.055	0.122
new	4.008	0.166	0.558
newspapers	7.516	0.235	-0.067
next	4.355	-0.232	-0.591
nh3	8.432	-0.436	0.045
night	5.227	-0.448	-0.323
nine	6.823	-0.296	-0.022
nmr	6.928	-0.81	-1.133
no	3.118	-0.027	0.227
no abnormalities	6.235	0.065	0.251
no because	4.488	0.192	0.502
no3	7.391	-0.419	0.164
no3 aq	8.278	-0.118	0.179
none	5.168	0.035	0.28
nor	5.497	-0.337	-0.226
norm	7.516	0.202	-0.056
normal	5.22	-0.027	0.251
north	5.894	-0.249	-0.187
not	2.461	0.53	0.122
not an	6.312	0.222	0.098
not guilty	6.254	-0.16	-0.391
not have	5.38	0.361	0.05
not recover	6.759	-0.166	0.096
not recover because	6.857	-0.218	0.023
note	6.13	-0.105	-0.569
notice	5.533	-0.19	0.258
notice of	6.463	-0.094	0.116
now	4.456	-0.325	0.124
nucleus	6.857	0.447	0.121
null	7.334	0.226	0.028
number	3.831	-0.305	0.135
number of	4.095	-0.237	0.505
nutrients	7.922	0.413	0.073
object	5.713	0.075	0.294
objection because	7.659	-0.278	0.089
objective	6.535	-0.073	0.273
objects	6.065	-0.08	0.147
obligation	6.081	0.276	0.003
observations	6.698	-0.08	-0.36
obtained	5.782	-0.747	-0.527
occur	6.05	-0.289	0.134
of	1.284	0.676	0.481
of 10	6.13	-0.332	-0.48
of 30	7.516	-0.171	0.089
of 50	6.535	-0.371	-0.025
of being	7.005	-0.127	0.138
of each	5.805	-0.148	0.297
of earth	7.28	0.481	0.173
of energy	6.857	0.089	-0.075
of group	7.391	0.166	-0.096
of hydrogen	7.391	-0.288	0.031
of in	8.432	-0.439	0.068
of land	5.83	-0.248	-0.096
of non	6.966	0.044	-0.22
of older	7.585	-0.093	0.286
of order	7.659	0.185	-0.038
of our	6.292	-0.233	-0.008
of power	6.857	-0.346	-0.084
of that	6.081	0.276	-0.02
of the	1.767	-0.494	-0.282
of the above	4.887	0.225	0.426
of the city	6.698	-0.036	0.212
of the fourteenth	6.561	-0.089	0.111
of the given	6.332	-0.86	-0.116
of the remaining	6.641	0.024	0.304
of the right	6.511	-0.056	0.182
of the second	7.046	0.204	-0.079
of the statute	6.728	-0.078	-0.351
of the three	7.229	-0.133	0.107
of the tongue	7.826	-0.213	0.142
of the two	6.463	0.105	-0.085
of their	5.042	-0.236	0.431
of these	4.472	0.317	0.677
of three	6.823	-0.015	0.248
of time	6.097	-0.381	0.109
of water	6.065	0.516	0.476
of which	5.1	-1.152	-1.429
office	4.972	0.088	-0.115
officer	5.805	0.044	0.39
official	6.217	-0.186	0.236
oh	6.487	-0.527	-0.228
old	4.012	0.477	0.845
old girl	6.892	-0.142	0.178
old is	7.28	0.07	0.279
old man	5.818	-0.119	0.18
older	5.65	0.16	0.358
older than	7.452	-0.129	0.138
on	2.325	-0.222	-0.323
on average	7.516	-0.012	0.238
on both	6.892	-0.46	-0.145
on her	6.035	-0.013	-0.316
on his	5.542	0.178	-0.25
on its	6.396	0.342	0.104
on monday	6.892	0.033	0.233
on the	3.01	-0.377	-0.187
on the first	6.396	-0.366	-0.15
on the right	5.59	-0.215	-0.468
on which	6.312	0.006	-0.258
only one	7.005	-0.237	0.048
open	5.168	-0.255	0.002
operating	6.535	-0.32	-0.462
operation	6.005	0.523	0.08
opposite	7.18	-0.085	0.207
or	2.955	0.467	0.821
oral	6.312	0.116	-0.192
oranges	6.44	0.064	-0.106
orbits	7.229	-0.133	-0.399
order	4.292	-0.299	-0.343
order to	5.065	0.156	0.306
orders	6.698	-0.169	-0.3
organism	7.046	0.313	-0.016
other	3.484	0.369	-0.083
others	5.194	0.507	0.604
otherwise	6.374	-0.326	-0.023
our	4.849	0.366	0.667
out	3.868	0.414	0.523
out of	5.042	0.18	0.327
out of the	5.855	0.292	0.046
out to	6.641	-0.189	0.1
output	6.463	-0.111	0.057
outside	5.29	0.188	-0.006
oven	7.826	0.032	0.389
over	3.959	0.352	0.518
over the	4.854	0.009	0.063
overall	6.698	0.079	0.468
overrule	7.452	-0.207	0.154
overrule the	7.516	-0.213	0.125
own	4.641	-0.002	0.581
owner	4.645	-0.544	-0.061
owner and	6.728	-0.248	0.067
owns	5.907	-0.593	-0.46
oxygen	6.217	-0.187	-0.242
pacf	8.278	-0.029	-0.483
pages	7.133	-0.064	0.244
pain	5.428	0.372	0.189
painted	7.585	-0.021	0.281
pair	6.147	-0.889	-0.518
pair of	7.005	-0.488	-0.015
pairs	6.613	-0.124	0.268
paper	6.05	-0.265	0.078
parallel	6.857	-0.126	0.035
parameters	7.046	-0.457	-0.027
parcel	6.613	0.048	-0.29
part of the	5.497	0.275	0.141
participation	6.928	0.449	0.06
participation in	7.391	0.263	-0.055
particle	6.928	-0.654	-0.869
particular	5.542	0.325	0.139
parties	5.349	-0.306	-0.03
party	5.088	0.099	-0.314
past	5.042	0.544	0.222
patients	6.396	-0.001	0.33
pay	4.472	0.119	-0.416
pay the	5.747	-0.287	-0.045
paying	6.44	-0.02	-0.275
payment	5.629	0.155	-0.16
peace	6.02	-0.128	0.201
pedestrian	6.587	0.109	-0.258
penalty	6.857	0.181	-0.034
pencil	7.659	0.112	-0.286
pencils	7.659	0.092	-0.329
pens	8.027	-0.033	-0.332
people in	5.471	-0.458	-0.312
people who	6.199	-0.0	0.252
per	4.604	0.615	0.751
per hour	6.641	0.129	0.385
per minute	7.516	-0.277	0.05
percentage of	6.966	-0.777	-0.455
performance	5.609	0.535	0.334
performed	6.097	-0.067	-0.308
period	4.962	-0.189	0.13
period of	6.065	-0.423	-0.077
permit	6.254	0.044	0.217
person	4.149	-0.454	-0.249
person is	6.005	-0.298	-0.081
perspective	6.561	0.473	0.025
peter	7.005	-0.07	0.275
phosphocreatine	7.922	0.222	-0.186
photon	8.027	-0.113	-0.452
physical	4.998	0.216	-0.061
pi	7.28	-0.618	-0.493
piece	6.113	0.439	0.006
piece of	6.511	0.22	-0.139
pilot	7.391	-0.101	0.169
pl	6.823	-0.82	-0.149
placed	5.297	-0.046	-0.293
places	6.44	-0.015	0.213
plan	5.758	0.063	-0.042
plane	6.535	-0.419	-0.156
planet	6.487	0.109	0.287
planned	6.273	-0.339	-0.139
planned to	6.641	-0.242	-0.011
planning	6.374	0.141	0.44
plans	6.254	0.105	0.265
plant	6.113	0.474	0.204
plastic	7.229	-0.072	0.205
played	6.44	-0.54	-0.864
plays	5.758	-0.277	-0.544
pluto	7.922	-0.302	0.163
pm	7.334	0.166	-0.147
point	5.349	-0.657	-0.174
police officer	6.332	-0.117	0.11
political	5.088	0.76	0.436
population	5.83	0.489	0.237
position	5.59	0.353	0.096
possession	5.388	-0.306	-0.132
possible	5.174	-0.792	-0.589
post	5.894	-0.148	0.067
power	4.711	0.158	0.609
ppm	7.516	-0.492	-0.855
practices	6.511	0.317	0.106
premises	5.948	-0.275	0.005
prepared	6.332	-0.137	-0.402
presence	5.907	0.078	-0.14
present in	7.229	0.154	-0.215
presented	6.097	-0.141	0.123
president	5.736	-0.679	-0.219
price	4.982	0.578	0.395
price of	6.199	0.068	0.272
primary	5.736	0.247	0.547
prime	6.535	0.133	-0.31
principles	6.374	0.37	0.12
privacy	6.487	-0.205	-0.032
private	5.67	-0.304	0.05
privilege	6.097	-0.307	0.002
probability	6.147	-0.603	-0.378
problem	5.38	0.019	0.275
processes	6.217	0.288	-0.065
produce	5.506	0.077	0.244
product	4.993	-0.764	-0.621
product of	6.487	-0.144	0.053
products	5.724	-0.328	-0.108
professor	6.79	-0.712	-0.258
profile	7.739	-0.177	0.221
profit	6.353	0.003	0.388
prohibited	6.273	0.206	-0.1
prohibition	7.005	0.167	-0.072
promise	6.199	-0.214	0.12
promise to	6.587	-0.116	0.129
promote	6.698	0.153	-0.199
proportion	6.966	-0.212	0.097
prosecution	5.793	-0.014	-0.24
protection	5.65	-0.106	0.097
provide	5.187	0.008	0.202
psychological	6.273	0.484	0.189
psychologist	5.868	0.688	0.269
psychologists	7.516	0.46	0.087
public	4.645	0.616	0.716
pulse	5.561	0.165	0.348
purchase	5.275	0.498	0.194
purchased	5.542	-0.055	-0.257
purchases	7.585	0.311	0.018
purchasing	6.823	0.18	-0.062
pure	6.857	0.265	-0.0
purpose	5.462	-0.295	0.029
purpose of	6.02	-0.096	0.143
py	8.615	0.276	-0.153
python	5.58	0.133	0.61
qualities	8.145	-0.212	0.131
quantum	7.005	-0.279	-0.025
quarter	6.728	-0.259	0.006
question	4.319	0.379	0.512
questions	6.147	-0.289	-0.108
quite	6.759	-0.145	0.117
rain	6.892	0.49	0.175
raised	6.418	-0.011	0.268
ran	5.962	0.02	0.228
range	5.92	0.138	-0.111
rate	5.283	0.676	0.886
ratio	6.164	-0.769	-0.623
ratio of	6.728	-0.402	-0.16
reach	6.13	-0.521	-0.266
reactions	6.463	-0.341	-0.543
read	5.692	-0.154	0.023
real	5.341	-0.442	-0.657
reasonable	5.268	-0.142	0.114
receive	5.713	0.009	0.174
receive the	7.452	-0.196	0.099
received	4.896	-0.16	-0.461
recent	5.842	-0.354	-0.118
recently	5.782	-0.135	0.089
recorded	5.713	-0.239	-0.014
records	6.254	0.512	0.279
recover	5.155	-0.631	-0.043
recover because	6.759	-0.333	0.121
recover because the	6.892	-0.208	0.123
reduce	6.065	0.065	0.294
referred	5.92	0.467	0.118
referred to	5.948	0.522	0.18
referred to as	6.254	0.591	0.383
refers	4.478	1.334	1.164
refers to	4.491	1.276	1.126
reflex	7.922	-0.247	0.25
refused to	5.312	-0.219	-0.062
regarded	7.005	-0.189	0.13
regression	6.217	0.43	0.22
regulation	6.613	0.35	-0.077
related	5.524	-0.616	-0.243
related to	5.962	-0.516	-0.289
relation	7.089	-0.405	0.04
relations	5.66	0.43	0.592
relationships	6.511	0.103	0.465
relative	6.13	-0.015	-0.494
relevant	5.782	0.304	0.075
reliable	6.928	0.087	-0.244
relief	6.587	-0.046	0.267
remain	5.77	0.189	-0.171
remaining	5.681	-0.056	0.538
remains	6.561	0.311	0.032
remove	6.081	-0.217	-0.059
representation	7.133	0.177	-0.122
represents	6.587	0.001	0.245
reputation	6.79	-0.111	0.208
require	5.976	-0.011	0.303
required	4.951	-0.171	0.058
required to	6.035	-0.475	-0.125
research	5.312	0.297	0.469
researchers	6.928	-0.475	-0.091
resident	6.587	-0.283	0.103
resistance	6.728	-0.49	-0.212
resource	7.046	0.386	0.037
respect	5.702	0.158	-0.106
respirations	5.99	0.046	0.273
responses	7.005	0.438	0.129
rest	5.524	-0.418	-0.039
restaurant	6.254	-0.028	0.323
result	4.565	-0.429	-0.013
result of	5.462	0.011	0.221
results in	6.669	-0.092	0.155
return	5.194	-0.172	0.111
returns	6.535	-0.444	-0.084
richard	7.739	-0.097	0.338
right to	4.911	0.328	-0.065
rights and	7.089	0.079	-0.179
risk	5.497	0.451	0.212
robbery	6.005	0.191	-0.502
robert	6.698	-0.249	-0.039
role	5.894	-0.329	-0.107
roman	7.005	-0.427	0.135
room	5.334	-0.179	0.081
roots	7.133	-0.047	-0.304
roots of	7.585	-0.151	-0.476
rose	6.561	0.06	-0.194
rule	4.946	0.062	0.328
run	5.488	-0.482	-0.192
runs	6.535	-0.301	-0.012
safe	6.892	0.141	0.32
said	4.425	-0.249	0.49
same	4.22	-0.452	-0.312
same as	7.18	-0.078	0.193
sample	6.13	0.26	-0.01
samples	6.641	0.636	0.28
sand	7.334	0.394	0.048
sarah	7.585	-0.194	0.162
satisfaction	6.669	-0.258	-0.075
saturn	7.516	-0.005	0.256
says	5.364	0.029	0.253
school	4.887	0.141	0.601
science	6.254	-0.421	-0.077
scientific	6.641	-0.093	0.201
search	5.77	0.615	0.245
season	6.698	-0.709	-0.499
second	4.443	-0.201	0.095
secondary	6.669	0.263	-0.051
seconds	6.561	-0.079	-0.224
section	6.005	-0.376	0.023
security	4.786	0.529	0.773
security is	7.18	-0.152	0.167
see	4.972	0.493	0.206
seeking	6.097	-0.15	0.065
selection	6.463	-0.125	0.267
self	5.22	0.591	0.555
sell the	6.728	-0.141	0.08
seller	6.199	-0.132	0.045
sells	6.535	0.005	-0.273
sense	6.147	0.16	-0.153
sent the	6.561	0.086	-0.215
service	5.59	0.655	0.1
set	4.804	-0.036	0.45
seven	6.199	-0.132	0.325
several	4.892	-0.099	0.043
severe	5.77	-0.012	0.177
sexual	5.99	0.344	-0.454
shall be	6.005	-0.008	0.158
she	3.388	0.421	0.936
she has	5.29	0.36	0.528
she is	5.515	0.063	0.282
she was	5.106	-0.09	0.166
ship	6.857	0.148	-0.187
shoes	6.353	-0.093	0.114
shot	5.976	-0.237	0.091
should	3.653	0.274	-0.197
should be	4.63	-0.627	-0.221
show	4.982	-0.038	-0.171
showing	6.759	-0.47	0.255
shows	4.854	0.146	0.692
shows no abnormalities	6.641	-0.013	0.203
side	5.471	-0.234	-0.075
sigma	7.826	-0.389	0.007
signed	5.283	0.023	-0.236
signed the	6.966	0.108	-0.152
similar	5.66	0.727	0.537
sin	7.18	-0.831	-0.15
since	4.679	-0.205	0.03
site	6.312	0.26	-0.059
situation	5.83	0.151	0.356
size	5.629	0.199	-0.156
skin	6.641	0.225	0.043
slope	6.966	0.21	-0.191
small	4.854	-0.249	0.188
smaller	6.463	-0.279	0.21
smallest	6.587	0.026	0.195
smith	7.229	-0.296	0.036
sodium	6.857	0.26	-0.156
some	4.034	0.266	0.531
some of	5.92	0.112	-0.187
some of the	6.418	0.077	-0.228
someone	5.268	0.826	0.557
something	5.248	0.131	0.341
sometimes	5.793	0.482	0.274
son	5.488	-0.845	-0.153
soon	5.934	-0.114	0.228
source	5.65	0.559	0.198
southern	6.759	-0.044	0.167
sovereignty	7.229	0.224	-0.089
space	5.65	-0.099	-0.429
special	5.692	0.084	-0.221
species	6.374	-0.203	0.031
speech	5.818	0.24	-0.051
speed	5.58	-0.432	-0.227
spend	5.713	0.046	0.375
spent	6.035	0.012	0.336
spread	6.463	-0.068	0.139
square	5.976	-0.584	-0.106
stage	6.02	-0.329	0.082
stage of	7.133	-0.319	0.015
standard	5.805	-0.312	0.258
stars	6.535	0.153	-0.131
started	5.479	-0.116	0.12
starts	6.613	-0.632	-0.022
state	3.798	-0.726	-0.629
state the	6.181	-0.15	0.032
stated	5.497	-0.076	0.123
stated that	6.217	-0.112	0.083
statement	4.551	-0.163	0.286
statement for	7.826	0.042	-0.193
statement if	7.089	-0.187	-0.481
statement the	6.418	-0.087	0.148
statements	4.877	0.058	-0.323
stating	6.561	-0.007	-0.298
station	6.181	0.054	0.224
statute	4.76	-0.154	-0.556
step	5.515	-0.095	0.206
stick	7.391	-0.331	0.18
still	5.137	0.472	0.638
stone	7.28	0.32	-0.031
stop	5.58	-0.054	0.251
stories	7.005	-0.187	0.196
str	7.516	0.034	0.39
strategy	6.374	0.156	-0.149
strict	6.312	-0.288	0.153
string	5.962	-0.183	0.349
strongest	6.13	-0.236	0.24
struck	5.83	-0.197	0.045
structures	6.312	0.643	0.433
student	5.283	0.351	0.516
students	5.297	0.087	0.629
studies	5.506	-0.465	0.059
study	5.261	0.298	0.683
sub	7.18	0.212	-0.087
subsequently prosecuted	7.28	-0.044	-0.353
substances	7.046	-0.136	0.21
substantially	6.487	-0.119	-0.39
success	6.254	-0.244	0.039
successfully	6.928	-0.133	0.183
such	4.057	-0.444	-0.833
such as	5.364	0.753	0.343
sued	5.02	0.259	0.364
sues	6.312	-0.339	-0.018
sues the	6.613	-0.31	-0.081
suffered	5.445	-0.274	-0.066
sufficient	5.818	0.155	-0.142
suggests	6.857	-0.192	0.144
suit against the	5.907	-0.093	-0.327
sum of	5.948	-0.407	-0.687
summer	6.641	-0.099	0.058
sun	5.713	0.237	0.291
sunday	7.18	-0.203	0.053
superficial	7.922	-0.29	0.141
superior	6.728	-0.089	0.263
supplies	6.823	-0.234	-0.025
support	5.094	-0.069	0.285
sure	5.907	-0.25	0.118
surface	5.842	0.085	-0.126
surgery	6.857	0.137	-0.15
sustain	6.728	-0.154	0.134
sustain the	7.133	-0.124	0.196
symmetric	7.922	-0.425	0.013
system is	7.089	0.043	-0.264
system the	6.928	-0.382	0.051
systems	6.254	0.343	-0.177
t1	8.432	0.086	-0.316
t2	8.615	0.124	-0.404
table	5.855	-0.664	-0.536
tactics	7.659	0.279	-0.021
take	4.443	-0.321	-0.207
takes	5.214	-0.347	0.001
taking	5.283	0.281	0.078
talking	6.728	-0.233	0.062
tall	6.113	0.32	-0.011
task	6.587	0.012	0.233
tasks	7.046	-0.096	0.386
tax	6.13	-0.334	-0.017
teacher	5.758	0.273	0.053
teachers	6.966	-0.038	0.234
technological	6.823	0.267	-0.054
teeth	7.18	0.282	-0.283
television	6.273	-0.245	0.002
temperature	5.042	0.324	0.196
ten	5.758	-0.074	0.272
tenant	6.312	0.371	0.002
term	4.998	0.356	0.557
terms	5.112	0.05	-0.239
terms of	5.66	-0.085	-0.257
test	5.162	0.177	0.218
testified	5.77	0.073	-0.142
than	3.414	0.115	0.783
than the	5.174	0.694	0.284
that	2.036	0.065	0.034
that are	5.437	-0.091	0.24
that costs	7.391	-0.193	0.147
that he	4.213	0.148	-0.074
that her	6.164	-0.442	-0.247
that in	6.44	0.143	-0.139
that is	4.683	0.277	0.247
that it	4.765	0.205	0.405
that occurs	7.659	-0.035	0.273
that she	4.936	-0.067	0.098
that the	3.168	-0.382	-0.152
that the man	6.535	-0.098	0.122
that there	5.713	-0.066	0.086
that was	5.38	0.078	-0.17
that we	5.83	-0.268	-0.004
that would	6.353	-0.255	0.106
the	1.189	-0.7	-0.843
the 1h	7.452	-0.342	-0.748
the ability	6.312	0.31	0.044
the above	4.773	0.159	0.436
the amount of	5.868	0.204	0.053
the apartment	6.857	0.143	-0.224
the average	6.353	-0.401	-0.011
the beach	7.18	-0.396	-0.121
the best	4.756	-0.338	0.013
the box	7.516	0.099	-0.235
the burden	6.966	-0.054	-0.347
the buyer	5.948	-0.192	-0.027
the car	5.609	-0.26	-0.392
the child	6.487	0.02	0.365
the city	5.341	-0.214	0.223
the complaint	6.928	0.112	-0.176
the constitutionality	6.181	0.106	-0.183
the constitutionality of	6.181	0.106	-0.183
the contract	5.42	-0.203	-0.017
the court	4.547	0.09	0.152
the day	5.793	0.33	-0.037
the death	6.561	0.21	-0.019
the defendant is	6.312	-0.352	-0.568
the difference	6.587	-0.023	0.156
the difference between	7.005	-0.134	0.123
the doctrine	6.613	0.106	-0.18
the doctrine of	6.641	0.093	-0.188
the driver	6.217	0.049	-0.368
the earth	6.292	0.17	0.472
the end of	5.681	-0.038	0.207
the ethical	8.145	0.098	-0.288
the extent	7.089	-0.387	0.105
the farmer	6.613	-0.248	-0.054
the first	4.016	-0.119	-0.063
the first day	6.79	-0.239	0.07
the following	2.465	0.023	-0.099
the following are	6.641	0.193	0.005
the following best	5.724	0.551	0.285
the following fallacies	6.79	0.265	-0.006
the following is	3.777	0.55	0.842
the following statements	5.241	0.014	-0.332
the following the	7.046	0.363	0.089
the fourteenth	6.332	-0.203	0.02
the fourteenth amendment	6.332	-0.203	0.02
the fourth	6.396	-0.067	0.097
the friend	5.894	-0.462	-0.238
the function	7.334	-0.208	0.106
the girl	6.966	-0.361	0.037
the given	5.357	-0.666	-0.185
the ground	5.934	-0.536	-0.282
the group	6.728	-0.045	0.234
the head	6.312	-0.094	0.137
the house	5.118	-0.392	-0.29
the idea	6.613	0.094	0.379
the judgment	7.391	-0.114	0.244
the land	5.561	-0.104	0.118
the loss	7.229	-0.382	-0.016
the lower	6.728	-0.398	-0.065
the lowest	7.18	-0.283	-0.598
the mass	6.759	0.058	-0.358
the maximum	6.353	-0.284	-0.495
the middle	6.487	0.386	0.054
the model	6.966	-0.08	-0.292
the money	6.164	0.224	-0.179
the moral	7.391	0.259	-0.189
the most	4.046	-0.287	0.261
the mother	6.44	0.137	0.395
the next	5.059	-0.186	-0.437
the number	4.568	0.002	0.004
the number of	4.648	-0.117	-0.106
the office	5.65	0.018	-0.239
the only	5.758	0.104	-0.225
the operation	6.892	0.201	-0.082
the original	5.948	0.059	-0.003
the overall	7.516	-0.038	0.266
the owner	5.094	-0.313	-0.051
the parties	5.782	-0.248	-0.091
the past	5.364	0.409	0.116
the patient	5.29	0.089	0.139
the pedestrian	6.79	0.094	-0.239
the people	5.22	0.025	-0.175
the period	6.332	-0.015	0.231
the person	5.207	-0.887	-0.772
the point	7.089	-0.301	0.095
the police	5.445	-0.113	-0.353
the power of	6.966	0.227	-0.116
the president	6.199	-0.355	-0.096
the price	6.181	0.113	0.359
the primary	6.535	0.104	0.373
the probability	6.535	-0.492	-0.319
the professor	7.452	-0.497	-0.184
the property	5.234	-0.167	-0.406
the prosecution	6.02	-0.084	-0.278
the public	5.894	0.212	0.425
the purpose	6.273	-0.139	0.165
the purpose of	6.332	-0.119	0.143
the rate of	7.18	0.436	0.113
the reaction	6.669	-0.856	-0.523
the remaining	5.88	-0.021	0.463
the rest	6.02	0.002	0.205
the right	4.6	0.182	-0.14
the sale	5.758	-0.0	0.28
the same	4.287	-0.478	-0.411
the second	4.735	-0.265	0.042
the seller	6.463	-0.194	0.057
the state the	6.966	-0.11	0.23
the statute	5.619	-0.114	-0.373
the strongest	6.487	-0.238	0.267
the student	6.312	-0.129	0.133
the sun	5.88	0.269	0.41
the supplier	7.922	0.202	-0.17
the surface	6.698	-0.017	-0.501
the surface of	7.229	-0.05	-0.356
the teacher	6.698	0.06	-0.288
the tenant	6.698	0.434	-0.018
the third	5.437	-0.155	0.151
the three	6.081	0.271	0.375
the time	4.951	0.703	0.309
the time of	5.868	0.226	-0.007
the tongue	7.739	-0.192	0.15
the total	5.254	0.2	0.478
the total number	6.273	0.172	0.575
the tract	6.728	-0.187	0.205
the trial	5.42	0.188	0.367
the two	5.261	0.134	-0.165
the united	5.404	0.264	0.095
the united states	5.488	0.268	0.053
the us	6.759	0.232	-0.026
the value	5.907	-0.418	-0.101
the value of	6.02	-0.382	-0.153
the victim	5.907	-0.737	-0.251
the way	5.99	-0.07	0.167
the way in	7.585	-0.175	0.16
the woman	5.155	-0.642	-0.404
the work	6.254	0.052	0.497
the year	7.005	-0.07	0.239
their	3.343	0.283	0.439
them	3.951	0.594	0.909
then	3.594	-1.064	-0.823
then it	7.659	0.175	-0.061
theory	5.112	1.005	0.748
therapist	6.79	0.27	0.663
therapy	5.479	0.319	-0.045
there	3.216	0.047	0.161
there are	4.478	0.245	0.32
there is	4.072	-0.387	-0.017
there is no	5.174	-0.086	0.178
there was	5.077	-0.262	0.271
there was no	5.92	-0.121	0.051
there were	5.868	0.653	0.348
therefore	5.207	0.368	0.586
these	3.682	0.423	0.557
they	3.339	0.274	0.728
they are	5.02	-0.172	-0.317
they do	7.133	0.091	-0.13
they each	7.826	-0.19	0.09
they have	5.83	-0.149	0.269
thing	6.02	0.139	-0.015
think	5.404	0.057	0.349
third	4.858	-0.12	0.443
third of	6.823	-0.033	0.227
third of the	7.334	-0.033	0.252
this	2.95	0.436	-0.0
this is	5.077	0.544	0.705
thomas	7.391	-0.477	-0.087
those	4.626	-0.168	0.059
though	5.66	-0.21	0.113
thought	4.931	0.567	0.697
three	4.074	-0.292	0.149
through	4.395	0.205	-0.016
through the	5.428	0.083	-0.281
throughout	6.097	0.043	0.245
thus	5.59	0.22	0.434
time	3.622	0.527	0.744
time the	5.77	0.272	0.015
time to	6.217	0.286	-0.011
times	4.544	0.104	0.315
times as	5.948	0.159	0.43
times as many	6.613	0.038	0.232
times the	6.759	0.525	0.222
to	1.537	1.024	0.911
to all	6.487	0.224	-0.041
to an	5.22	-0.117	-0.279
to as	6.181	0.658	0.426
to be	3.623	-0.039	0.411
to buy	5.58	-0.138	0.299
to collect	6.641	-0.222	-0.022
to come	6.79	-0.055	0.213
to complete	6.641	-0.06	0.19
to consider	7.18	-0.191	0.079
to deliver	6.857	-0.219	0.142
to do	5.112	-0.164	-0.362
to do so	6.561	0.152	-0.158
to eat	6.728	-0.001	-0.246
to ensure	6.728	-0.065	0.227
to find	4.936	-0.022	0.117
to get	5.187	-0.159	0.062
to go	5.894	-0.027	0.185
to have	4.778	-0.363	-0.148
to have the	6.418	-0.451	-0.149
to help	5.962	0.077	0.234
to her	5.357	-0.175	0.08
to his	4.951	-0.449	0.095
to increase	6.463	-0.04	0.322
to keep	6.035	0.15	-0.004
to lead	7.452	0.102	-0.247
to make	4.715	0.336	0.087
to one	6.535	0.098	-0.1
to pay the	5.92	-0.289	-0.054
to promote	7.005	0.162	-0.19
to reach	6.561	-0.558	-0.177
to receive	6.928	-0.183	0.08
to recover	5.454	-0.444	-0.228
to reduce	6.535	-0.119	0.066
to remove	6.511	-0.149	0.148
to require	7.739	-0.215	0.091
to see	5.67	0.192	-0.154
to spend	7.005	-0.265	0.114
to take	5.524	-0.023	0.124
to the	2.495	-0.316	0.54
to use	5.462	0.073	0.186
to watch	7.391	0.11	-0.174
to what	6.587	-0.089	0.177
to which	5.894	0.305	0.112
together	5.334	0.132	0.314
too	5.174	-0.149	0.283
took	4.854	0.038	0.235
took the	6.292	0.026	-0.334
torn	8.432	0.178	-0.103
total	4.443	0.529	0.822
total number	6.181	0.169	0.593
total number of	6.199	0.169	0.571
toward	5.65	0.381	0.005
towards	6.463	-0.06	0.256
tract	5.736	-0.434	0.14
tract of	6.312	-0.262	0.026
trade	5.497	0.778	0.491
traditional	5.92	0.143	0.362
traffic	6.181	0.143	-0.209
train	6.857	-0.034	0.254
traits	7.18	0.057	0.307
travel	6.254	-0.109	-0.341
treated	5.736	-0.547	-0.422
trial	4.341	-0.02	-0.215
trial the	5.042	-0.189	-0.396
trip	6.641	-0.172	0.196
truck	5.976	0.317	-0.097
true	4.149	-0.285	-0.11
true false	5.58	-0.395	-0.19
true false false	5.58	-0.395	-0.19
true true	5.58	-0.233	-0.112
true true false	5.58	-0.233	-0.112
tuesday	6.928	0.007	0.243
tuples	7.229	0.239	0.407
turned	5.907	-0.026	-0.225
twice	5.118	0.32	0.411
twice as	5.842	0.021	0.58
twice as many	6.396	0.155	0.444
twice the	6.79	0.417	0.11
two	3.414	-0.955	-0.255
type of	5.437	0.115	-0.061
typically	6.728	0.403	0.197
unable	5.758	0.119	-0.099
unable to	5.758	0.119	-0.099
unconstitutional	5.818	0.354	-0.184
unconstitutional because	6.669	0.168	-0.209
unconstitutional because it	6.966	0.138	-0.126
under	3.923	-0.301	-0.097
undergo	7.391	-0.255	0.23
understand	6.13	-0.024	-0.238
unit	6.254	-0.011	-0.383
united	5.297	0.306	0.214
united states	5.437	0.274	0.091
units	6.418	-0.295	-0.156
university	5.842	0.007	0.239
unknown	6.147	-0.341	0.178
unless	5.42	-0.188	0.049
unless the	6.292	0.048	0.242
until	4.982	-0.267	-0.554
up	3.967	-0.245	0.126
up the	6.005	-0.141	0.1
up to	5.736	-0.044	0.174
up to the	7.046	-0.177	0.078
upon	4.637	-0.387	-0.309
used	4.038	0.228	-0.127
used to	5.214	0.928	0.713
usually	5.702	-0.085	0.201
vacation	6.823	-0.38	0.137
value	4.524	-0.002	-0.366
values	5.629	-0.355	-0.143
vapor	7.739	0.196	-0.235
variables	6.05	-0.014	-0.253
variance	6.613	0.287	-0.004
various	5.67	0.173	-0.109
very	4.637	-0.143	0.27
vessel	7.659	0.033	-0.254
via	6.561	-0.271	0.015
victim	5.747	-0.804	-0.149
victim was	6.966	-0.245	0.102
video	6.857	-0.251	0.004
voltage	6.928	-0.534	-0.387
volume	6.199	0.074	-0.129
wall	6.254	0.557	0.173
wallet	7.739	-0.27	0.152
want to	5.736	-0.576	-0.313
wanted	5.609	-0.093	0.059
wanted to	5.92	-0.29	-0.078
war	5.275	0.092	-0.147
was	2.593	-1.408	-1.437
was formed	7.516	0.087	-0.299
was given	6.759	-0.121	0.158
was not	4.586	-0.164	-0.017
was unaware	6.728	-0.382	-0.128
waste	6.823	-0.19	0.082
water	4.719	0.439	0.008
water is	7.452	0.293	-0.054
way	4.437	0.336	0.539
way in	6.698	0.017	0.309
way in which	7.229	-0.104	0.231
way to	5.713	-0.163	0.142
ways	5.599	-0.322	0.026
we	4.289	0.143	0.499
we can	6.113	-0.279	0.047
we should	6.823	0.219	-0.125
web	6.759	0.202	0.001
weight	5.681	0.397	0.048
weight loss	7.005	0.15	-0.319
well as	6.292	0.086	-0.156
went	4.887	-0.524	-0.014
went to	5.702	-0.191	0.137
were	3.466	-0.068	-0.055
west	6.147	0.239	0.408
what	2.645	0.546	-0.01
what do	6.928	0.212	0.048
what is	3.637	-0.459	-0.049
what is the	3.911	-0.526	-0.728
what kind	6.669	0.179	-0.041
what kind of	6.669	0.179	-0.041
what should	7.18	-0.059	-0.326
what the	6.02	-0.08	0.178
what was	5.83	0.476	0.132
what was the	6.418	0.217	-0.104
what will	6.273	0.02	-0.249
what would	6.669	0.129	-0.263
when did	6.535	-0.672	-1.043
when he	5.054	0.071	0.428
when the	4.177	-0.202	0.219
where	3.826	0.239	-0.484
where could	8.145	0.156	-0.153
where is	6.535	0.022	-0.299
where the	4.972	-0.134	-0.387
which of	2.581	0.715	1.092
which of the	2.664	0.876	1.063
which of these	5.137	-0.006	0.491
which one	5.976	0.106	-0.142
which was	5.736	-0.492	-0.187
while	4.133	-0.307	-0.099
white	5.445	-0.136	0.041
who	3.111	-0.725	-1.239
who is	5.106	0.138	-0.07
who is the	7.229	0.377	0.075
who plays	8.027	-0.004	-0.304
who was	4.982	-0.085	-0.316
whole	5.793	-0.127	0.137
whom	5.782	0.169	-0.081
will	3.004	0.482	0.356
will be	4.541	-0.069	-0.596
will have	6.164	-0.307	0.209
will it	6.535	0.011	-0.351
will it take	7.005	0.042	-0.347
will not	5.681	0.294	0.076
will not be	6.613	0.129	-0.185
will remain	7.659	0.163	-0.153
will the	4.882	0.677	0.478
win	6.097	-0.193	-0.47
winding	8.432	-0.326	0.105
winter	6.587	-0.232	0.156
with age	7.922	-0.179	0.193
with all	6.698	0.239	-0.092
with his	5.639	0.129	-0.139
with the	3.634	-0.193	0.062
without	4.303	0.277	0.428
without the	6.823	-0.311	0.082
witness	5.59	-0.246	-0.003
woman	4.514	-0.288	0.096
woman has	7.089	-0.211	0.15
women	5.58	0.135	0.31
words	5.639	0.138	0.321
work	4.459	0.531	0.743
working	5.454	0.095	0.498
worth	6.081	0.575	0.277
would	3.26	-0.242	-0.477
would be	4.218	-0.342	-0.561
would not	5.59	-0.298	0.016
would not be	6.587	-0.263	0.071
would you	6.332	0.339	-0.058
write	4.443	0.168	0.385
write function	4.982	-0.112	0.231
write function to	5.059	-0.09	0.106
writing	5.629	0.306	0.099
year	3.738	-0.045	0.424
year and	6.857	-0.106	0.254
year old	4.392	0.365	0.404
year old girl	6.928	-0.158	0.171
year old man	5.894	-0.17	0.128
years	4.061	-0.047	0.227
years old	6.418	-0.248	-0.063
yes	4.191	0.591	0.443
yes because	4.537	0.092	0.473
you	3.586	-0.289	-0.504
you can	5.758	-0.17	0.12
you find	7.046	0.467	0.086
you have	5.805	-0.064	-0.253
younger	6.535	0.005	0.28
your	4.266	-0.185	0.11
your answer	7.089	-0.48	-0.272
zero	6.164	-0.18	-0.035
"""
