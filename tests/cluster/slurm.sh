#!/bin/sh
# A real Slurm on this machine alone: a controller and two nodes of one core each, `one` and `two`, as root.
#   tests/cluster/slurm.sh up FOLDER      # then: export SLURM_CONF=FOLDER/slurm.conf
#   tests/cluster/slurm.sh down FOLDER
# From Debian's packages: apt-get install slurmctld slurmd slurm-client munge
set -eu
folder=$(mkdir -p "$2" && cd "$2" && pwd)
export SLURM_CONF="$folder/slurm.conf"

ended() {
    for file in "$folder"/*.pid; do
        [ -s "$file" ] && kill "$(cat "$file")" 2>/dev/null || true
    done
}

case "$1" in
down)
    ended
    exit 0
    ;;
up) ;;
*)
    echo "slurm.sh: up FOLDER or down FOLDER" >&2
    exit 2
    ;;
esac

PATH=$PATH:/usr/sbin:/sbin
for needed in munged slurmctld slurmd sbatch; do
    command -v "$needed" >/dev/null || {
        echo "slurm.sh: no $needed; apt-get install slurmctld slurmd slurm-client munge" >&2
        exit 3
    }
done
[ "$(id -u)" = 0 ] || {
    echo "slurm.sh: slurmd needs root" >&2
    exit 3
}

chmod 755 "$folder"
dd if=/dev/urandom of="$folder/munge.key" bs=1024 count=1 2>/dev/null
chmod 600 "$folder/munge.key"
munged --force --key-file="$folder/munge.key" --socket="$folder/munge.socket" --log-file="$folder/munged.log" \
    --pid-file="$folder/munged.pid" --seed-file="$folder/munged.seed"

host=$(hostname -s)
cat >"$SLURM_CONF" <<CONF
ClusterName=one-machine
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=26817
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$folder/munge.socket
CredType=cred/munge
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool-%n
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd-%n.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=10
MpiDefault=none
NodeName=one NodeHostname=$host NodeAddr=127.0.0.1 Port=27001 CPUs=1 State=UNKNOWN
NodeName=two NodeHostname=$host NodeAddr=127.0.0.1 Port=27002 CPUs=1 State=UNKNOWN
PartitionName=all Nodes=one,two Default=YES MaxTime=INFINITE State=UP
CONF
mkdir -p "$folder/state" "$folder/spool-one" "$folder/spool-two"
slurmctld
slurmd -N one
slurmd -N two
for _ in $(seq 60); do
    [ "$(sinfo --noheader --Node --states=idle 2>/dev/null | wc -l)" -ge 2 ] && exit 0
    sleep 0.5
done
echo "slurm.sh: the nodes don't come up; see $folder/slurmctld.log" >&2
ended
exit 1
