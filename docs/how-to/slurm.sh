#!/bin/bash
#SBATCH --job-name=graphormer
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --gpus-per-node=4
#SBATCH --cpus-per-task=4
#SBATCH --time=04:00:00
#SBATCH --signal=TERM@120
#SBATCH --output=%x-%j.log
#SBATCH --open-mode=append
#SBATCH --requeue
# Trains RUN on 2 x 4 GPUs and goes back into the queue until it is done. Lightning finds its
# processes through SLURM's own variables, so srun is the launcher. From the repository, environment
# active:
#   sbatch docs/how-to/slurm.sh runs/zinc -c configs/zinc.yaml --data.root DIR
set -u
run=$1
shift

if [ -f "$run/config.yaml" ]; then
    what=(--resume "$run")
else
    what=(--output "$run" --trainer.num_nodes 2 --trainer.devices 4 --trainer.strategy ddp "$@")
fi

# A job that could not start at all would come back for ever.
before=$(stat -c %Y "$run/checkpoints/last.ckpt" 2>/dev/null || echo none)
srun python train.py fit "${what[@]}"
after=$(stat -c %Y "$run/checkpoints/last.ckpt" 2>/dev/null || echo none)

if [ ! -f "$run/summary.json" ] && [ "$before" != "$after" ]; then
    # By number: SLURM runs a copy of this script, which does not know where the script is.
    scontrol requeue "$SLURM_JOB_ID"
fi
